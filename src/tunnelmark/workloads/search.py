"""Search for the highest rate that keeps to a loss goal; pure but for ``measure``, which is given.

Two ways: plain binary search as RFC 2544 section 26.1 has it, and MLRsearch, which spends short
trials first. Both end with two bounds: a rate that was seen to keep to the goal and one that was
seen not to.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tunnelmark.model.errors import LabError

MOST_ATTEMPTS: Final = 3
"""A trial that does not measure what it says is repeated; the third time the search ends."""


@dataclass(frozen=True)
class Seen:
    """One trial of a search."""

    packet_rate: float
    """Datagrams per second that were asked for."""
    duration_s: float
    sent: int
    lost: int
    received_s: float | None = None
    """Packets per second that arrived; None: not measured."""
    sender_limited: bool = False
    """The sender could not keep the rate, so the trial says nothing of what is searched."""

    @property
    def loss_ratio(self) -> float:
        """Share of what was sent; 1 where nothing was."""
        return self.lost / self.sent if self.sent else 1.0

    def keeps(self, loss_ratio: float) -> bool:
        """Whether the rate was sent, and no more lost than the goal allows."""
        return not self.sender_limited and self.loss_ratio <= loss_ratio


Measure = Callable[[float, float], Seen]
"""Runs a trial of (packets per second, seconds at least)."""


@dataclass(frozen=True)
class Goal:
    """What is looked for."""

    loss_ratio: float
    lowest: float
    """Packets per second below which nothing is tried."""
    highest: float
    width_ratio: float
    """Both bounds may lie so far apart, as a share of the upper one."""
    trial_s: float
    confirm: int
    """Trials of that length that a bound rests on."""
    most_trials: int


@dataclass(frozen=True)
class Found:
    """Where a search ended; None for a bound that was not found."""

    lower: float | None
    """None: even the lowest rate loses more than the goal allows, or cannot be sent."""
    upper: float | None
    """None: even the highest rate keeps to the goal."""
    trials: tuple[Seen, ...]
    loss_ratio: float = 0.0
    """That of the goal."""
    complete: bool = True
    """False when the limit of trials ended it before the bounds were close enough."""

    @property
    def sender_limit(self) -> float | None:
        """The upper bound where it is the sender's: what it could not send. Else None."""
        return self.upper if self._upper_is_the_senders else None

    @property
    def exceeded(self) -> float | None:
        """The upper bound where it is the path's: a rate that was sent and lost too much."""
        return None if self._upper_is_the_senders else self.upper

    @property
    def _upper_is_the_senders(self) -> bool:
        decisive = self._decisive(self.upper)
        lost = any(s.loss_ratio > self.loss_ratio for s in decisive if not s.sender_limited)
        return not lost and any(seen.sender_limited for seen in decisive)

    @property
    def only_the_sender(self) -> bool:
        """Whether the sender failed at the lowest rate, so that nothing is known of the path."""
        return self.lower is None and self.sender_limit is not None

    @property
    def forwarded(self) -> float | None:
        """Packets per second that arrived at the lower bound, if that is less than was offered.

        A queue that fills takes in what the link does not carry: a trial without loss shows that
        much was carried, and no more. 0 where no rate keeps to the goal, None where the sender
        could not send any.
        """
        if self.lower is None:
            return None if self.only_the_sender else 0.0
        arrived = [
            seen.received_s
            for seen in self._decisive(self.lower)
            # Others were overruled.
            if seen.received_s is not None and seen.keeps(self.loss_ratio)
        ]
        return min([self.lower, *arrived])

    def _decisive(self, rate: float | None) -> list[Seen]:
        """Return the trials at a bound that it rests on: the longest ones at that rate.

        Of it alone: a goal with loss needs so many packets that slower trials are longer.
        """
        at_it = [s for s in self.trials if rate and math.isclose(s.packet_rate, rate, rel_tol=1e-6)]
        longest = max((seen.duration_s for seen in at_it), default=0.0)
        return [seen for seen in at_it if seen.duration_s >= longest * _FULL]


def binary_search(goal: Goal, measure: Measure) -> Found:
    """Search by halving the interval, from the highest rate on (RFC 2544 section 26.1)."""
    trials: list[Seen] = []
    lower: float | None = None
    upper: float | None = None
    rate = goal.highest
    try:
        while upper is None or lower is None or upper - lower > goal.width_ratio * upper:
            if _keeps(goal, measure, rate, trials):
                lower = rate
                if upper is None:
                    break
            else:
                upper = rate
                if upper <= goal.lowest:
                    break
            rate = _next(goal, lower, upper, trials)
    except _SpentError:
        return Found(lower, upper, tuple(trials), goal.loss_ratio, complete=False)
    return Found(lower, upper, tuple(trials), goal.loss_ratio)


def _keeps(goal: Goal, measure: Measure, rate: float, trials: list[Seen]) -> bool:
    """Try a rate until the majority of ``confirm`` trials is known."""
    good = bad = 0
    while max(good, bad) <= goal.confirm // 2:
        if len(trials) >= goal.most_trials:
            raise _SpentError
        trials.append(measure(rate, goal.trial_s))
        if trials[-1].sender_limited:
            return False
        if trials[-1].keeps(goal.loss_ratio):
            good += 1
        else:
            bad += 1
        if good + bad == goal.confirm:
            break
    return good > bad


def _next(goal: Goal, lower: float | None, upper: float, trials: list[Seen]) -> float:
    if lower is not None:
        # Rates are compared as ratios, so the middle is that of the logarithms.
        return math.sqrt(lower * upper)
    # What came through of too much is near the goal; each miss goes twice as far below.
    step = min(0.5, goal.width_ratio * 2.0 ** (len({seen.packet_rate for seen in trials}) - 1))
    last = trials[-1]
    came = last.received_s or last.packet_rate * (1 - last.loss_ratio)
    return max(goal.lowest, min(came, upper * (1 - step)))


def mlr_search(goal: Goal, measure: Measure) -> Found:
    """Search by MLRsearch (draft-ietf-bmwg-mlrsearch), whose trials start short.

    Only those of full length decide (RFC 2544 section 24): the first ones have a quarter of it, and
    no more than two seconds.
    """
    # It looks at its callers' sources while it is imported: a third of a second that only a search
    # should pay.
    import MLRsearch as mlr  # noqa: N813, PLC0415 - see above

    trials: list[Seen] = []

    class Measurer(mlr.AbstractMeasurer):  # type: ignore[misc]  # the package has no types
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            if len(trials) >= goal.most_trials:
                raise _SpentError
            seen = measure(intended_load, intended_duration)
            trials.append(seen)
            return mlr.MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=seen.sent,
                # A rate that cannot be sent is beyond the upper bound, wherever that is.
                loss_count=max(1, seen.sent - 1) if seen.sender_limited else seen.lost,
            )

    config = mlr.Config()
    # Its default, 9001 per second, is more than a 2 Mbit/s line carries of any size.
    config.min_load = goal.lowest
    config.max_load = goal.highest
    config.warmup_duration = 0.0
    config.search_duration_max = 1e9  # the number of trials is the limit, not the clock
    wanted = mlr.SearchGoal(
        loss_ratio=goal.loss_ratio,
        # Of one trial none may fail; of several fewer than half.
        exceed_ratio=0.0 if goal.confirm == 1 else 0.499,
        relative_width=goal.width_ratio,
        initial_trial_duration=_first_trials_s(goal.trial_s),
        final_trial_duration=goal.trial_s,
        duration_sum=goal.trial_s * goal.confirm,
        fail_fast=False,
    )
    config.goals = [wanted]
    search = mlr.MultipleLossRatioSearch(config)
    try:
        result = search.search(Measurer(), debug=lambda _text: None)[wanted]
    except _SpentError:
        return _so_far(goal, trials)
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    return Found(
        None if lower is None else float(lower),
        None if upper is None else float(upper),
        tuple(trials),
        goal.loss_ratio,
    )


def mlr_trials_s(trial_s: float) -> float:
    """Return how long a trial of such a search is on average, if each length has as many."""
    first_s = _first_trials_s(trial_s)
    return (first_s + math.sqrt(first_s * trial_s) + trial_s) / 3


def _first_trials_s(trial_s: float) -> float:
    return min(trial_s / 4, _LONGEST_FIRST_S)


def most(
    good: Callable[[int], bool], limit: int, *, first: int = 1, step: int = 1
) -> tuple[int, int | None]:
    """Return the largest number up to ``limit`` seen to be good, and the smallest seen not to be.

    The first is 0 if not even 1 is good, the second None if ``limit`` is. Begins with ``first``,
    ends when the two are at most ``step`` apart, but never without a good one while there may be
    one. ``good`` falls from true to false just once; each number is tried at most once.
    """
    low, high = 0, min(first, limit)
    while good(high):
        low = high
        if high == limit:
            return limit, None
        high = min(limit, 2 * high)
    while high - low > (step if low else 1):
        middle = (low + high) // 2
        if good(middle):
            low = middle
        else:
            high = middle
    return low, high


def usual_tries(limit: int, *, first: int, step: int) -> int:
    """Return how many numbers ``most`` tries if the answer lies half-way by doublings."""
    doublings = math.ceil(math.log2(max(1.0, limit / first)) / 2)
    gap = first * 2**doublings - first * 2 ** (doublings - 1) if doublings else 1
    return doublings + 1 + max(0, math.ceil(math.log2(gap / step)))


_LONGEST_FIRST_S: Final = 2.0
_FULL: Final = 0.99
"""Share of a length from which a trial has it: it ends with a whole packet."""


class _SpentError(LabError):
    """The limit of trials was reached."""

    def __init__(self) -> None:
        super().__init__("the search used all its trials")


def _so_far(goal: Goal, trials: list[Seen]) -> Found:
    """Return the bounds that full-length trials had shown when the search was ended."""
    full = [seen for seen in trials if seen.duration_s >= goal.trial_s * _FULL]
    bad = [seen.packet_rate for seen in full if not seen.keeps(goal.loss_ratio)]
    upper = min(bad, default=None)
    good = [
        seen.packet_rate
        for seen in full
        if seen.keeps(goal.loss_ratio) and (upper is None or seen.packet_rate < upper)
    ]
    return Found(max(good, default=None), upper, tuple(trials), goal.loss_ratio, complete=False)
