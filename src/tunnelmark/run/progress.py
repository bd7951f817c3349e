"""What has been measured of each point, and what is still to do; pure, so a resume is a replay."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tunnelmark.model.job import Aim, Job
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE, Point, Trial
from tunnelmark.run.stop import (
    Asked,
    confidence_of_a_look,
    difference_width,
    figure_width,
    looks,
)
from tunnelmark.study.plan import first_round, pairs, repeat

Figures = Mapping[str, float | None]
Kind = tuple[str, int]
"""Label of a trial's workload, and its bring-up."""


@dataclass
class JobProgress:
    """The trials of one job: done, invalid, given up, still to do."""

    job: Job
    values: dict[str, dict[int, Figures]] = field(default_factory=lambda: defaultdict(dict))
    """Point and repeat to what decides of its valid trial, by metric."""
    done: set[str] = field(default_factory=set)
    """Trials that have a valid attempt."""
    attempts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Trial to attempts so far, those that were forgiven included."""
    invalid: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Trial to invalid attempts that count against its point."""
    given_up: set[str] = field(default_factory=set)
    """Points with too many invalid attempts at one repeat."""
    up: int | None = None
    """Which bring-up of the tunnel is under way."""
    most: int = field(init=False)
    """Repeats that a point has at most; a run with a time to spend opens them bit by bit."""
    _pair: Mapping[str, Sequence[Point]] = field(init=False)
    _widths: dict[tuple[str, int], float | None] = field(default_factory=dict)
    """Of pairs, by the repeats that were looked at: what was seen at a look stays as it was."""
    _known: dict[str, Trial] | None = None
    """By trial; shrinks with each that is done. None: to be found; empty: nothing is left."""
    _counts: Counter[Kind] = field(default_factory=Counter)
    """The same, counted by kind: to count thousands of trials after each of them takes longer than
    some trials do."""

    def __post_init__(self) -> None:
        """Find the partner of each point."""
        self.most = self.job.precision.max_repeats
        found = pairs(self.job.block.points)
        self._pair = {point.point_id: pair for pair in found for point in pair}

    def record(
        self, trial: Trial, *, valid: bool, figures: Figures, forgiven: bool = False
    ) -> None:
        """Enter one attempt, with its figures by metric.

        One that is ``forgiven`` does not count against its point: it was interrupted, or the run
        was resumed since.
        """
        self.attempts[trial.trial_id] += 1
        if valid:
            self.done.add(trial.trial_id)
            point = trial.point.point_id
            kept = {aim.metric: figures.get(aim.metric) for aim in self.job.aims[point]}
            self.values[point][trial.repeat] = kept
            if self._known is not None:
                if self._known.pop(trial.trial_id, None) is not None:
                    self._counts[kind_of(trial)] -= 1
                self._known = self._known or None
        elif not forgiven:
            self.invalid[trial.trial_id] += 1
            if self.invalid[trial.trial_id] > self.job.precision.max_invalid:
                self.given_up.add(trial.point.point_id)
                self._known = None

    def next_trials(self) -> tuple[Trial, ...]:
        """Return the trials to run before this is asked again, all of one bring-up.

        Empty when the block is finished.
        """
        known = self.known_trials()
        return tuple(trial for trial in known if trial.bring_up == known[0].bring_up)

    def known_trials(self) -> tuple[Trial, ...]:
        """Return what is to do before the stop rule looks again, bring-up by bring-up."""
        return tuple(self._open_trials().values())

    def known_counts(self) -> Mapping[Kind, int]:
        """Return how many of these trials there are of each kind."""
        self._open_trials()
        return self._counts

    def is_open(self, trial: Trial) -> bool:
        """Say whether a trial that was to be run still is."""
        return (
            trial.repeat <= self.most
            and trial.trial_id not in self.done
            and trial.point.point_id not in self.given_up
        )

    def open_until(self, repeats: int) -> None:
        """Let points have so many repeats, of those that the stop rule wants."""
        self.most = repeats
        self._known = None

    def wants(self, point: Point, number: int) -> bool:
        """Say whether a point needs this repeat: until what is asked of its pair is known.

        A difference is formed repeat by repeat, so a point alone would be of no use.
        """
        return point.point_id not in self.given_up and not self._settled(point, number)

    def width(self, point: Point) -> float:
        """Return the width that a pair had when it was last looked at, over what is asked.

        1 or less: what is asked is known, or nothing more will be. Infinite: not looked at yet.
        """
        if not self.wants(point, self.job.precision.max_repeats):
            return 0.0
        seen = [look for look in self._looks() if self._seen(self._partners(point), look)]
        width = self._width(point, seen[-1]) if seen else None
        return math.inf if width is None else width

    def widest(self) -> float:
        """Return the largest of these widths."""
        return max(self.width(point) for point in self.job.block.points)

    @property
    def expected_trials(self) -> int:
        """Valid trials that the block will have at least, given what is known now."""
        least = len(self.job.block.points) * self.job.precision.min_repeats
        return max(least, len(self.done) + len(self._open_trials()))

    def _open_trials(self) -> dict[str, Trial]:
        if self._known is None:
            self._known = {trial.trial_id: trial for trial in self._find_known()}
            self._counts = Counter(map(kind_of, self._known.values()))
        return self._known

    def _find_known(self) -> tuple[Trial, ...]:
        first = self._open(first_round(self.job))
        if first:
            return first
        precision = self.job.precision
        for number in range(precision.min_repeats + 1, self.most + 1):
            points = [point for point in self.job.block.points if self.wants(point, number)]
            if trials := self._open(repeat(self.job, points, number)):
                return trials
        return ()

    def _settled(self, point: Point, number: int) -> bool:
        """Say whether a pair was precise at a look before this repeat."""
        widths = (self._width(point, look) for look in self._looks() if look < number)
        return any(width is not None and width <= 1 for width in widths)

    def _looks(self) -> tuple[int, ...]:
        return looks(self.job.precision.min_repeats, self.job.precision.max_repeats)

    def _partners(self, point: Point) -> list[Point]:
        return [p for p in self._pair[point.point_id] if p.point_id not in self.given_up]

    def _seen(self, partners: Sequence[Point], look: int) -> bool:
        return all(
            number in self.values[point.point_id]
            for point in partners
            for number in range(1, look + 1)
        )

    def _width(self, point: Point, look: int) -> float | None:
        """Judge the first ``look`` repeats of a pair, or of what is left of it."""
        partners = self._partners(point)
        if not self._seen(partners, look):
            return None
        key = (" ".join(partner.point_id for partner in partners), look)
        if key not in self._widths:
            self._widths[key] = self._judged(partners, look)
        return self._widths[key]

    def _judged(self, partners: Sequence[Point], look: int) -> float | None:
        return _largest(
            self._aimed(partners, look, aim) for aim in self.job.aims[partners[0].point_id]
        )

    def _aimed(self, partners: Sequence[Point], look: int, aim: Aim) -> float | None:
        precision = self.job.precision
        paired = aim.of == "difference" and len(partners) > 1
        asked = Asked(
            aim.metric,
            aim.half_width,
            confidence_of_a_look(precision.confidence, len(self._looks())),
            relative=aim.relative,
            # A share of nothing asks for nothing that could be reached: a loss of 0 beside 0.
            least=METRICS[aim.metric].worth_telling if paired and aim.relative else 0.0,
        )
        repeats = range(1, look + 1)
        ups = [precision.bring_up_of(number) for number in repeats]
        by_side = [
            [self.values[p.point_id][number][aim.metric] for number in repeats] for p in partners
        ]
        if paired:
            own, base = sorted(zip(partners, by_side, strict=True), key=_is_baseline)
            return difference_width(own[1], base[1], ups, asked)
        return _largest(figure_width(values, ups, asked) for values in by_side)

    def _open(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        return tuple(trial for trial in trials if self.is_open(trial))


def kind_of(trial: Trial) -> Kind:
    """Return what of a trial says how long it takes."""
    return trial.point.workload.label, trial.bring_up


def _largest(widths: Iterable[float | None]) -> float | None:
    found = list(widths)
    return None if None in found else max(width for width in found if width is not None)


def _is_baseline(side: tuple[Point, object]) -> bool:
    return side[0].tunnel.kind == BASELINE
