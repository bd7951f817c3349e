"""What has been measured of each point, and what is still to do; pure, so a resume is a replay."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunnelmark.model.trial import Block, Point, Trial
from tunnelmark.run.stop import confidence_of_a_look, looks, relative_half_width
from tunnelmark.study.plan import first_round, pairs, repeat
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
    """Trial to attempts so far, those that an interruption spoiled included."""
    invalid: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Trial to invalid attempts that count against its point."""
    given_up: set[str] = field(default_factory=set)
    """Points with too many invalid attempts at one repeat."""
    _pair: Mapping[str, Sequence[str]] = field(init=False)
    _kind: Mapping[str, str] = field(init=False)
    _verdicts: dict[tuple[str, int], bool] = field(default_factory=dict)
    _next: tuple[Trial, ...] | None = None

    def __post_init__(self) -> None:
        """Find the partner of each point."""
        self._pair = {
            point.point_id: [partner.point_id for partner in pair]
            for pair in pairs(self.block.points)
            for point in pair
        }
        self._kind = {point.point_id: point.workload.kind for point in self.block.points}

    def record(
        self, trial: Trial, *, valid: bool, value: float | None, interrupted: bool = False
    ) -> None:
        """Enter one attempt; one that was interrupted says nothing against its point."""
        self._next = None
        self.attempts[trial.trial_id] += 1
        if valid:
            self.done.add(trial.trial_id)
            self.values[trial.point.point_id].append(value)
        elif not interrupted:
            self.invalid[trial.trial_id] += 1
            if self.invalid[trial.trial_id] > self.study.precision.max_invalid:
                self.given_up.add(trial.point.point_id)

    def next_trials(self) -> tuple[Trial, ...]:
        """Return the trials to run before this is asked again; empty when the block is finished."""
        if self._next is None:
            self._next = self._find_next()
        return self._next

    def wants(self, point: Point, number: int) -> bool:
        """Say whether a point needs this repeat: until it and its partner are both precise.

        A difference is formed repeat by repeat, so a point alone would be of no use.
        """
        if point.point_id in self.given_up:
            return False
        return any(not self._settled(partner, number) for partner in self._pair[point.point_id])

    @property
    def expected_trials(self) -> int:
        """Valid trials that the block will have at least, given what is known now."""
        least = len(self.block.points) * self.study.precision.min_repeats
        return max(least, len(self.done) + len(self.next_trials()))

    def _find_next(self) -> tuple[Trial, ...]:
        first = self._open(first_round(self.study, self.block).trials)
        if first:
            return first
        precision = self.study.precision
        for number in range(precision.min_repeats + 1, precision.max_repeats + 1):
            points = [point for point in self.block.points if self.wants(point, number)]
            if trials := self._open(repeat(self.study, self.block, points, number)):
                return trials
        return ()

    def _settled(self, point_id: str, number: int) -> bool:
        """Say whether a point was precise at a look before this repeat, or is given up."""
        precision = self.study.precision
        before = looks(precision.min_repeats, precision.max_repeats)
        return point_id in self.given_up or any(
            self._precise(point_id, look) for look in before if look < number
        )

    def _precise(self, point_id: str, look: int) -> bool:
        """Judge the first ``look`` values; what was seen at a look stays as it was."""
        values = self.values[point_id]
        if len(values) < look:
            return False
        key = (point_id, look)
        if key not in self._verdicts:
            precision = self.study.precision
            number = len(looks(precision.min_repeats, precision.max_repeats))
            width = relative_half_width(
                [value for value in values[:look] if value is not None],
                metric=precision.metric_of(self._kind[point_id]),
                confidence=confidence_of_a_look(precision.confidence, number),
            )
            self._verdicts[key] = width is not None and width <= precision.relative_half_width
        return self._verdicts[key]

    def _open(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        return tuple(
            trial
            for trial in trials
            if trial.trial_id not in self.done and trial.point.point_id not in self.given_up
        )
