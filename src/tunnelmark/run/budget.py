"""A time to spend: the minimum number of repeats for all points, then more where they help most."""

from collections.abc import Callable, Iterator, Sequence

from tunnelmark.analysis.sequential import looks
from tunnelmark.model.job import Job
from tunnelmark.run.progress import JobProgress
from tunnelmark.run.time_left import TimeLeft


class Budget:
    """Divides seconds over the jobs of a run; what is enough still says the stop rule.

    Only repeats that the study plans anyway are opened, up to the looks that it plans, so no error
    has to be paid for beyond theirs: that the time is over does not depend on any figure.
    """

    def __init__(
        self,
        seconds: float,
        progress: Sequence[JobProgress],
        left: TimeLeft,
        now: Callable[[], float],
    ) -> None:
        """Begin to spend; ``now`` is a clock in seconds."""
        self._end = now() + seconds
        self._progress, self._left, self._now = progress, left, now

    def jobs(self) -> Iterator[Job]:
        """Yield a job, with some repeats open, when the one before is done or has failed."""
        for progress in self._progress:
            progress.open_until(progress.job.precision.min_repeats)
            if progress.known_trials() and self._fits(progress, whole=False):
                yield progress.job
        open_ = [progress for progress in self._progress if not progress.known_trials()]
        while chosen := self._widest(open_):
            yield chosen.job
            if chosen.known_trials():
                open_.remove(chosen)

    def trial_done(self) -> None:
        """Close every point if the time is over: no trial is begun that it is not enough for."""
        current = [p for p in self._progress if p.up is not None]
        if not all(self._fits(progress, whole=False) for progress in current):
            for progress in self._progress:
                progress.open_until(0)

    @property
    def seconds(self) -> float:
        """Return what is left of the time; below 0 once it is over."""
        return self._end - self._now()

    @property
    def words(self) -> str:
        """Return what the time was not enough for; empty if it was enough for all."""
        points = [(p, point) for p in self._progress for point in p.job.block.points]
        least = self._progress[0].job.precision.min_repeats
        missing = sum(len(p.values[point.point_id]) < least for p, point in points)
        wide = sum(p.width(point) > 1 for p, point in points)
        found = [f"{missing} of {len(points)} points have fewer repeats than the study's minimum"]
        found += [
            f"{wide} of {len(points)} points did not reach the precision that the study asks for"
        ]
        return "; ".join(
            text for text, count in zip(found, (missing, wide - missing), strict=True) if count > 0
        )

    def _widest(self, candidates: Sequence[JobProgress]) -> JobProgress | None:
        """Open more repeats of the job that knows least, of those whose repeats still fit."""
        for progress in sorted(candidates, key=JobProgress.widest, reverse=True):
            precision = progress.job.precision
            before = progress.most
            steps = (*looks(precision.min_repeats, precision.max_repeats), precision.max_repeats)
            look = next((step for step in steps if step > before), before)
            # Up to the next look; where the time is too short for that, one repeat.
            for repeats in dict.fromkeys((look, min(look, before + 1))):
                progress.open_until(repeats)
                if progress.known_trials() and self._fits(progress, whole=True):
                    return progress
            progress.open_until(before)
        return None

    def _fits(self, progress: JobProgress, *, whole: bool) -> bool:
        """Say whether the time is enough for what is open of a job, or for its beginning."""
        trials = progress.known_trials() if whole else progress.known_trials()[:1]
        return self._left.seconds([(trials, progress.up)]) <= self.seconds
