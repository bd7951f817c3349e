"""How late packets may be before a trial is not what it says; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.validity import Check

LATE_TAIL: Final = "late_tail_"
"""Start of the names of checks that say of a valid trial that its latest packets are the
instrument's: its packets belong in no distribution of delays."""


@dataclass(frozen=True)
class Late:
    """Lateness of a stream of packets, ns."""

    p90: int
    tail: int
    """What 1 % of them reach, and at least two of 20 or more."""


def lateness_checks(
    name: str,
    words: tuple[str, str],
    late: Sequence[Late],
    *,
    limit_ns: int,
    apart_ns: int | None,
) -> tuple[Check, ...]:
    """Judge the worst of several streams of packets, or of none.

    ``words``: which packets, and what they did late. ``apart_ns``: the gap between packets that
    are too few for a percentile beyond the median; else None. A median and a loss are what they are
    while nine of ten packets are in time, and those of the last hundredth do not come near the next
    one: how late these are would decide about a figure that nobody gets.
    """
    which, did = words
    p90 = max((one.p90 for one in late), default=0)
    tail = max((one.tail for one in late), default=0)
    most = f"1 % of {which} (two at least) {did} {tail / 1e6:.3f} ms late or more"
    if apart_ns is None or tail <= limit_ns:
        return (_check(name, most, tail, limit_ns),)
    most_of_all = f"10 % of {which} {did} {p90 / 1e6:.3f} ms late or more"
    if p90 > limit_ns:
        return (_check(name, most_of_all, p90, limit_ns),)
    check = _check(name, f"{most_of_all}, {most}", tail, apart_ns // 2)
    if not check.ok:
        return (check,)
    about = f"{most}: this trial is in no distribution of delays"
    return (check, Check(LATE_TAIL + name, ok=True, message=about))


def _check(name: str, words: str, seen_ns: int, limit_ns: int) -> Check:
    return Check(
        name,
        ok=seen_ns <= limit_ns,
        message=f"{words}; the limit is {limit_ns / 1e6:.3f} ms",
        value=float(seen_ns),
        limit=float(limit_ns),
        unit="ns",
    )
