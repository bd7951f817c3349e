"""What has been measured of each point, and what is still to do; pure, so a resume is a replay."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tunnelmark.model.trial import Block, Point, Trial
from tunnelmark.run.stop import relative_half_width
from tunnelmark.study.plan import first_round, repeat
from tunnelmark.study.study import Study


@dataclass
class BlockProgress:
    """The trials of one block: done, invalid, given up, still to do."""

    study: Study
    block: Block
    values: dict[str, list[float | None]] = field(default_factory=lambda: defaultdict(list))
    """Point to the deciding metric of its valid trials."""
    done: set[str] = field(default_factory=set)
    """Trials that have a valid attempt."""
    attempts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Trial to attempts so far."""
    given_up: set[str] = field(default_factory=set)
    """Points with too many invalid attempts at one repeat."""

    def record(self, trial: Trial, *, valid: bool, value: float | None) -> None:
        """Enter one attempt."""
        self.attempts[trial.trial_id] += 1
        if valid:
            self.done.add(trial.trial_id)
            self.values[trial.point.point_id].append(value)
        elif self.attempts[trial.trial_id] > self.study.precision.max_invalid:
            self.given_up.add(trial.point.point_id)

    def next_trials(self) -> tuple[Trial, ...]:
        """Return the trials to run before this is asked again; empty when the block is finished."""
        first = self._open(first_round(self.study, self.block).trials)
        if first:
            return first
        precision = self.study.precision
        for number in range(precision.min_repeats + 1, precision.max_repeats + 1):
            points = [point for point in self.block.points if self.wants(point, number)]
            if trials := self._open(repeat(self.study, self.block, points, number)):
                return trials
        return ()

    def wants(self, point: Point, number: int) -> bool:
        """Say whether a point needs this repeat, from the repeats before it."""
        if point.point_id in self.given_up:
            return False
        seen = [v for v in self.values[point.point_id][: number - 1] if v is not None]
        width = relative_half_width(
            seen, metric=self.study.precision.metric, confidence=self.study.precision.confidence
        )
        return width is None or width > self.study.precision.relative_half_width

    @property
    def expected_trials(self) -> int:
        """Valid trials that the block will have at least, given what is known now."""
        least = len(self.block.points) * self.study.precision.min_repeats
        return max(least, len(self.done) + len(self.next_trials()))

    def _open(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        return tuple(
            trial
            for trial in trials
            if trial.trial_id not in self.done and trial.point.point_id not in self.given_up
        )
