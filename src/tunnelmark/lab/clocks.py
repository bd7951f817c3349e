"""How far two clocks are apart, by exchanges of packets both ways, and how sure that is.

A packet that leaves at t1 and arrives at t2 by the other clock took some time, so the other clock
is ahead by less than t2 - t1; the answer, t3 to t4, took some time too, so it is ahead by more than
t3 - t4. Each exchange is two such bounds, whatever the delays were and however they differ by
direction; the quickest packets give the narrowest (a minimum filter, Paxson 1998). With clocks that
run at steady speeds the bounds are those of a straight line: all lines between them are possible,
and the truth is one of them. So the error is a bound, not a guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tunnelmark.engine.records import MISSING_NS, Flow

MOST_DRIFT_PPM: Final = 1000.0
"""Linux slews a clock by 500 ppm at most (adjtimex(2)), each of the two."""
_LEAST_EXCHANGES: Final = 2
_TIMESTAMP_ERROR_NS: Final = 1000.0
"""So far a time may be from the event: reading a clock, a timestamp in an interrupt."""
_BINS: Final = 256
"""Pieces of time of which each gives its narrowest bounds."""

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockOffset:
    """By how much the far clock is ahead of the near one, from ``start_ns`` to ``end_ns``.

    Times are of the near clock. Between the two ends the offset lies between the lines that join
    their bounds: what is possible is a convex set.
    """

    start_ns: int
    end_ns: int
    least_ns: tuple[float, float]
    """At the start and at the end."""
    most_ns: tuple[float, float]
    drift_ppm: tuple[float, float]
    """Least and most: how much faster the far clock runs."""

    def at(self, time_ns: int) -> tuple[float, float]:
        """Return (offset, error) in ns: the truth is within the error, either way."""
        share = (time_ns - self.start_ns) / max(1, self.end_ns - self.start_ns)
        if not 0 <= share <= 1:
            raise ValueError(f"{time_ns} is outside {self.start_ns} to {self.end_ns}")
        least = self.least_ns[0] + share * (self.least_ns[1] - self.least_ns[0])
        most = self.most_ns[0] + share * (self.most_ns[1] - self.most_ns[0])
        return (least + most) / 2, (most - least) / 2

    @property
    def error_ns(self) -> float:
        """The largest error from start to end."""
        return (
            max(most - least for least, most in zip(self.least_ns, self.most_ns, strict=True)) / 2
        )


@dataclass(frozen=True)
class Bounds:
    """What packets say of how far the far clock is ahead; times are of the near clock, in ns."""

    at_most: Times
    most_ns: Times
    """The far clock is ahead by no more than this at the time beside it."""
    at_least: Times
    least_ns: Times


def bounds_of(flow: Flow, *, from_far: bool = False) -> Bounds:
    """Return what the packets of a flow say; ``from_far``: the far end sent them.

    Each direction counts for itself: a stream that nobody answers bounds one side.
    """
    there, back = flow.arrived, flow.answered & flow.returned
    sent, arrived = flow.sent_ns[there], flow.arrived_ns[there]
    answered, returned = flow.answered_ns[back], flow.returned_ns[back]
    if from_far:
        return Bounds(answered, returned - answered, arrived, sent - arrived)
    return Bounds(sent, arrived - sent, returned, answered - returned)


def all_bounds(parts: Sequence[Bounds]) -> Bounds:
    """Return what several flows say together."""
    names = ("at_most", "most_ns", "at_least", "least_ns")
    none = np.zeros(0, dtype=np.int64)
    return Bounds(*(np.concatenate([none, *(getattr(p, name) for p in parts)]) for name in names))


def on_near_clock(flow: Flow, clocks: ClockOffset, *, from_far: bool = False) -> Flow:
    """Return a flow whose times of the far end are those of the near clock.

    No packet arrives before it leaves by the middle of what is possible, up to the error of a
    timestamp; that is taken off here.
    """

    def near(times: Times) -> Times:
        known = times != MISSING_NS
        return np.where(known, _near(np.where(known, times, clocks.start_ns), clocks), times)

    if from_far:
        sent, returned = near(flow.sent_ns), near(flow.returned_ns)
        sent = np.where(flow.arrived, _before(sent, flow.arrived_ns), sent)
        returned = np.where(flow.returned, _before(flow.answered_ns, returned, late=True), returned)
        return replace(flow, sent_ns=sent, returned_ns=returned)
    arrived, answered = near(flow.arrived_ns), near(flow.answered_ns)
    arrived = np.where(flow.arrived, _before(flow.sent_ns, arrived, late=True), arrived)
    both = flow.answered & flow.returned
    answered = np.where(both, _before(answered, flow.returned_ns), answered)
    return replace(flow, arrived_ns=arrived, answered_ns=answered)


def _near(far: Times, clocks: ClockOffset) -> Times:
    """Return the times of the near clock at which the far one showed these."""
    ends = [(least + most) / 2 for least, most in zip(clocks.least_ns, clocks.most_ns, strict=True)]
    base = round(ends[0])
    span = max(1, clocks.end_ns - clocks.start_ns)
    slope = (ends[1] - ends[0]) / span
    # From the start on everything is small enough for a float.
    passed = (far - base - clocks.start_ns).astype(np.float64) - (ends[0] - base)
    return clocks.start_ns + np.rint(passed / (1 + slope)).astype(np.int64)


def _before(first: Times, second: Times, *, late: bool = False) -> Times:
    """Return the earlier times held to the later ones, by no more than a timestamp's error.

    ``late``: return the later times, held to the earlier ones.
    """
    off = (second < first) & (first - second <= 2 * _TIMESTAMP_ERROR_NS)
    return np.where(off, first, second) if late else np.where(off, second, first)


def offset_of(flow: Flow) -> ClockOffset | None:
    """Return by how much the clock at the far end of a flow is ahead, by its recorded packets."""
    came = flow.arrived & flow.answered & flow.returned
    times = (flow.sent_ns, flow.arrived_ns, flow.answered_ns, flow.returned_ns)
    return clock_offset(*(part[came] for part in times))


def clock_offset(
    sent: Times, arrived: Times, answered: Times, returned: Times
) -> ClockOffset | None:
    """Return the offset that exchanges (t1, t2, t3, t4 in ns) leave possible.

    ``sent`` and ``returned`` are of the near clock. None where there are too few exchanges, or no
    straight line passes between their bounds: then a clock was set, or slewed on the way.
    """
    return offset_within(Bounds(sent, arrived - sent, returned, answered - returned))


def offset_within(bounds: Bounds) -> ClockOffset | None:
    """Return the offset that bounds leave possible; None as with ``clock_offset``."""
    if min(len(bounds.at_most), len(bounds.at_least)) < _LEAST_EXCHANGES:
        return None
    start = int(min(bounds.at_most.min(), bounds.at_least.min()))
    end = int(max(bounds.at_most.max(), bounds.at_least.max()))
    base = int(np.median(bounds.most_ns))
    # Differences are exact as integers; what is left of them is small enough for a float.
    most = (bounds.most_ns - base).astype(np.float64) + _TIMESTAMP_ERROR_NS
    least = (bounds.least_ns - base).astype(np.float64) - _TIMESTAMP_ERROR_NS
    span = max(1, end - start)
    at_most, most = _narrowest((bounds.at_most - start) / span, most)
    at_least, low = _narrowest((bounds.at_least - start) / span, -least)
    drift = MOST_DRIFT_PPM * 1e-6 * span
    corners = _possible(at_most, most, at_least, -low, drift)
    if corners is None:
        return None
    first, last, slope = corners
    return ClockOffset(
        start,
        end,
        (base + first[0], base + last[0]),
        (base + first[1], base + last[1]),
        (slope[0] / span * 1e6, slope[1] / span * 1e6),
    )


_Floats = npt.NDArray[np.float64]
_Range = tuple[float, float]


def _narrowest(at: _Floats, bound: _Floats) -> tuple[_Floats, _Floats]:
    """Return the lowest bound of each piece of time: others add nothing worth their number."""
    order = np.lexsort((bound, np.minimum((at * _BINS).astype(np.int64), _BINS - 1)))
    bins = np.minimum((at[order] * _BINS).astype(np.int64), _BINS - 1)
    first = np.concatenate(([True], bins[1:] != bins[:-1]))
    return at[order][first], bound[order][first]


def _possible(
    at_most: _Floats, most: _Floats, at_least: _Floats, least: _Floats, drift: float
) -> tuple[_Range, _Range, _Range] | None:
    """Return the ranges of the value at 0, at 1 and of the slope of all lines between the bounds.

    Unknown are the values at both ends; each is bounded by linear programming.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - takes long to import, and few need it

    # value(x) = first (1 - x) + last x
    rows = [np.column_stack((1 - at_most, at_most)), -np.column_stack((1 - at_least, at_least))]
    rows.append(np.array([[-1.0, 1.0], [1.0, -1.0]]))
    limits = np.concatenate((most, -least, [drift, drift]))
    scale = max(1.0, float(np.abs(limits).max()))
    matrix = np.concatenate(rows)
    found: list[_Range] = []
    for goal in ((1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)):
        ends = []
        for sign in (1.0, -1.0):
            done = linprog(
                np.array(goal) * sign, matrix, limits / scale, bounds=(None, None), method="highs"
            )
            if done.status != 0 or done.fun is None:
                return None
            ends.append(float(done.fun) * sign * scale)
        found.append((ends[0], ends[1]))
    return found[0], found[1], found[2]
