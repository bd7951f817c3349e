"""How far the jobs of a run are, and how long they will still take; pure.

Only the job under way has its progress in memory, and those that a resume or a time to spend asks
about: of the others a few numbers are kept, and of all of them the sum.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tunnelmark.model.block import BlockRecord
from tunnelmark.model.job import Job
from tunnelmark.model.trial import TrialResult
from tunnelmark.run.progress import Figures, JobProgress
from tunnelmark.run.time_left import Need, TimeLeft


class Tally:
    """Counts over all jobs of a run."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """Nothing has been measured yet."""
        self.left = TimeLeft(jobs[0].expected_s if jobs else {})
        self.valid = self.invalid = 0
        self._jobs = {job.job_id: job for job in jobs}
        self._open: dict[str, JobProgress] = {}
        self._parts = {job.job_id: _untouched(job) for job in jobs}
        self._sum = _added(self._parts.values())

    def progress(self, job_id: str) -> JobProgress:
        """Return the progress of a job, kept until it is closed."""
        if job_id not in self._open:
            self._open[job_id] = JobProgress(self._jobs[job_id])
        return self._open[job_id]

    def close(self, job_id: str) -> None:
        """Keep a few numbers of a job that has ended."""
        self._update(job_id)
        del self._open[job_id]

    def record(self, result: TrialResult, figures: Figures, took_s: float) -> None:
        """Enter a trial of this session, which took so long."""
        progress = self.progress(result.trial.block_id)
        valid = result.validity.valid
        progress.record(result.trial, valid=valid, figures=figures)
        self._count([valid])
        self.left.trial_done(result.trial, took_s)
        self._update(result.trial.block_id)

    def replayed(self, progress: JobProgress, valid: Sequence[bool]) -> None:
        """Enter a job as earlier sessions left it, with whether each of its trials is valid."""
        self._open[progress.job.job_id] = progress
        self._count(valid)
        self._update(progress.job.job_id)

    def _count(self, valid: Sequence[bool]) -> None:
        self.valid += sum(valid)
        self.invalid += len(valid) - sum(valid)

    def bring_up(self, record: BlockRecord) -> None:
        """Enter what the last attempt took, if it came to its end."""
        last = record.attempts[-1]
        if last.phase == "done":
            self.left.bring_up_done(last.seconds)

    @property
    def trials_done(self) -> int:
        """Trials with a valid attempt."""
        return self._sum.done

    @property
    def trials_expected(self) -> int:
        """Valid trials that the run will have at least, given what is known now."""
        return self._sum.expected

    @property
    def given_up(self) -> int:
        """Points with too many invalid attempts."""
        return self._sum.given_up

    @property
    def seconds_left(self) -> float:
        """How long what is open will take."""
        return self.left.of(self._sum.need)

    def _update(self, job_id: str) -> None:
        progress = self._open[job_id]
        need = self.left.need(progress.known_counts(), progress.up)
        now = _Part(len(progress.done), progress.expected_trials, len(progress.given_up), need)
        self._sum = _changed(self._sum, self._parts[job_id], now)
        self._parts[job_id] = now


class _Part(NamedTuple):
    """What one job is of the sum."""

    done: int
    expected: int
    given_up: int
    need: Need


_NOTHING = _Part(0, 0, 0, Need(0.0, 0, 0))


def _untouched(job: Job) -> _Part:
    """Return the part of a job of which nothing has been measured, without listing its trials."""
    precision = job.precision
    repeats = precision.min_repeats
    trials = len(job.block.points) * repeats
    once_s = math.fsum(job.expected_s[point.workload.label] for point in job.block.points)
    ups = len({precision.bring_up_of(number) for number in range(1, repeats + 1)})
    return _Part(0, trials, 0, Need(once_s * repeats, trials, ups))


def _added(parts: Iterable[_Part]) -> _Part:
    total = _NOTHING
    for part in parts:
        total = _changed(total, _NOTHING, part)
    return total


def _changed(total: _Part, was: _Part, now: _Part) -> _Part:
    """Return a sum in which one part has changed."""
    return _Part(
        total.done - was.done + now.done,
        total.expected - was.expected + now.expected,
        total.given_up - was.given_up + now.given_up,
        Need(
            total.need.expected_s - was.need.expected_s + now.need.expected_s,
            total.need.trials - was.need.trials + now.need.trials,
            total.need.bring_ups - was.need.bring_ups + now.need.bring_ups,
        ),
    )
