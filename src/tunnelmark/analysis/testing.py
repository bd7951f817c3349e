"""One-sided tests and how several make one claim; pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from scipy import stats

from tunnelmark.analysis.intervals import share_exact

Quantity = Literal["value", "difference", "ratio", "slope", "relative_slope"]

MOST_REPEATS: Final = 10_000
_POWER: Final = 0.8
"""Usual since Cohen, Statistical Power Analysis (1988): four of five runs would decide."""


@dataclass(frozen=True)
class Spread:
    """An estimate with its standard error; ``freedom`` are Student's degrees of freedom."""

    value: float
    error: float | None
    """None: too few repeats to know it."""
    freedom: float
    repeats: int


@dataclass(frozen=True)
class OneSided:
    """The claim that a figure lies above ``limit`` (``side`` 1) or below it (-1)."""

    what: str
    spread: Spread
    limit: float
    side: Literal[1, -1]
    quantity: Quantity
    """``ratio``: figure and limit are logarithms of a ratio."""
    method: str
    inclusive: bool = True
    """Whether a figure that is the limit itself, without any scatter, fulfils the claim."""
    logarithmic: bool = False
    """Whether figure and limit are logarithms."""
    packets: tuple[int, int] | None = None
    """Hits and how many they are of, where the law is binomial and not Student's."""
    looks: int = 1
    """At how many moments the run could have ended: the p count so many times."""

    @property
    def p_confirm(self) -> float:
        """Return p against the claim's opposite."""
        return min(1.0, self.looks * self._tails()[0])

    @property
    def p_reject(self) -> float:
        """Return p against the claim."""
        return min(1.0, self.looks * self._tails()[1])

    def bounds(self, tail: float) -> tuple[float, float] | None:
        """Return the interval with ``tail`` beyond each end; None where there is none."""
        tail /= self.looks
        if self.packets is not None:
            found = share_exact(*self.packets, 1 - 2 * tail)
            return (found.low or 0.0, 1.0 if found.high is None else found.high)
        error = self.spread.error
        if error is None or (error == 0 and not self._certain and self._p_alike > tail):
            return None
        half = 0.0 if error == 0 else _quantile(tail, self.spread.freedom) * error
        return self.spread.value - half, self.spread.value + half

    def repeats_to_settle(self, tail: float) -> int | None:
        """Return how many repeats would decide four times of five; None: no bearable number."""
        tail /= self.looks
        error, count = self.spread.error, self.spread.repeats
        gap = abs(self.spread.value - self.limit)
        if self.packets is not None:
            return self._packets_to_settle(tail)
        if error == 0 and not self._certain:
            return max(count, math.ceil(-math.log2(tail)))
        if error is None or gap == 0 or error == 0:
            return None
        single = error * math.sqrt(count)
        ratio = max(self.spread.freedom / max(1, count), 1e-3)
        for needed in _counts(count + 1):
            freedom = max(1.0, ratio * needed)
            wanted = _quantile(tail, freedom) + _quantile(1 - _POWER, freedom)
            if wanted * single / math.sqrt(needed) <= gap:
                return needed
        return None

    @property
    def _certain(self) -> bool:
        """Whether the figure is known without any scatter, like a length on the wire."""
        return math.isinf(self.spread.freedom)

    @property
    def _p_alike(self) -> float:
        """Return how likely all repeats lie on one side of the median: the sign test."""
        return float(0.5**self.spread.repeats)

    def _packets_to_settle(self, tail: float) -> int | None:
        hits, of = (0, 0) if self.packets is None else self.packets
        count = self.spread.repeats
        for needed in _counts(count + 1):
            more = (round(hits * needed / count), round(of * needed / count))
            if min(_binomial(*more, self.limit)) <= tail:
                return needed
        return None

    def _tails(self) -> tuple[float, float]:
        if self.packets is not None:
            above, below = _binomial(*self.packets, self.limit)
            return (above, below) if self.side == 1 else (below, above)
        if self.spread.error is None:
            return 1.0, 1.0
        beyond = self.side * (self.spread.value - self.limit)
        if self.spread.error == 0:
            holds = beyond > 0 or (beyond == 0 and self.inclusive)
            # A length on the wire is what it is; figures that only happened to be alike are not.
            p = 0.0 if self._certain else self._p_alike
            return (p, 1.0) if holds else (1.0, p)
        at = beyond / self.spread.error
        freedom = self.spread.freedom
        if math.isinf(freedom):
            return float(stats.norm.sf(at)), float(stats.norm.cdf(at))
        return float(stats.t.sf(at, freedom)), float(stats.t.cdf(at, freedom))


@dataclass(frozen=True)
class Claim:
    """Several tests or claims that must hold ``all``, or of which ``any`` must."""

    needs: Literal["all", "any"]
    parts: "tuple[Claim | OneSided, ...]"

    @property
    def p_confirm(self) -> float:
        """Return p for the claim.

        All must hold: the largest p, without correction (intersection-union test, Berger 1982).
        One suffices: the smallest times their number (Bonferroni).
        """
        return _joined([part.p_confirm for part in self.parts], largest=self.needs == "all")

    @property
    def p_reject(self) -> float:
        """Return p against the claim, by the same two rules the other way round."""
        return _joined([part.p_reject for part in self.parts], largest=self.needs == "any")


Part = Claim | OneSided


def leaves(part: Part) -> tuple[OneSided, ...]:
    """Return all tests of a claim."""
    if isinstance(part, OneSided):
        return (part,)
    return tuple(test for inner in part.parts for test in leaves(inner))


def deciding(part: Part, *, rejected: bool) -> tuple[OneSided, int]:
    """Return the test that a verdict hangs on, and how many times its p counts.

    ``rejected``: the one that speaks most against the claim; otherwise the one that a confirmation
    waits for.
    """
    if isinstance(part, OneSided):
        return part, 1
    found = [(inner, *deciding(inner, rejected=rejected)) for inner in part.parts]
    if rejected:
        largest = part.needs == "any"
        key = [inner.p_reject for inner, _, _ in found]
    else:
        largest = part.needs == "all"
        key = [inner.p_confirm for inner, _, _ in found]
    at = key.index(max(key) if largest else min(key))
    _, test, times = found[at]
    return test, times if largest else times * len(found)


def mean_of(parts: Sequence[Spread]) -> Spread:
    """Return the mean of independent estimates, each counting the same.

    They may scatter differently: degrees of freedom by Welch (1947) and Satterthwaite (1946).
    """
    return combined(parts, [1 / len(parts)] * len(parts))


def combined(parts: Sequence[Spread], weights: Sequence[float]) -> Spread:
    """Return a weighted sum of independent estimates (a planned contrast)."""
    value = math.fsum(w * part.value for w, part in zip(weights, parts, strict=True))
    repeats = min(part.repeats for part in parts)
    variances = [
        None if part.error is None else (w * part.error) ** 2
        for w, part in zip(weights, parts, strict=True)
    ]
    known = [v for v in variances if v is not None]
    if len(known) < len(parts):
        return Spread(value, None, 0, repeats)
    total = math.fsum(known)
    if total == 0:
        # Certain only if each of them is.
        return Spread(value, 0.0, min(part.freedom for part in parts), repeats)
    # As shares of the whole: the squares of very small variances would be no floats any more.
    inverse = math.fsum(
        (v / total) ** 2 / part.freedom for v, part in zip(known, parts, strict=True) if v > 0
    )
    freedom = 1 / inverse if inverse else math.inf
    return Spread(value, math.sqrt(total), freedom, repeats)


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard error of repeats."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:  # noqa: PLR2004 - scatter needs two values
        return Spread(mean, None, 0, count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    if min(values) == max(values):
        # Sums of equal numbers round: there is no scatter.
        return Spread(values[0], 0.0, count - 1, count)
    return Spread(mean, math.sqrt(variance / count), count - 1, count)


def holm(p: Sequence[float], alpha: float) -> list[tuple[bool, float]]:
    """Return for each p whether it is significant, and the level it was held against.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure (1979): the smallest p against
    alpha / m, the next against alpha / (m - 1) …, until the first that fails. Any dependence.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found = [(False, alpha)] * len(p)
    open_ = True
    for rank, index in enumerate(order):
        level = alpha / (len(p) - rank)
        open_ = open_ and p[index] <= level
        found[index] = (open_, level)
    return found


def settle(part: Part, level: float) -> int | None:
    """Return how many repeats would decide a claim, if the figures stay as they are.

    ``level`` is the error that the whole claim may have. None: no number up to 10,000 would.
    """
    if isinstance(part, OneSided):
        return part.repeats_to_settle(level)
    # One that fails settles what all must fulfil, one that holds what any must: a shared error.
    alone = [inner for inner in part.parts if leans(inner) == (part.needs == "any")]
    if alone:
        found = [settle(inner, level / len(part.parts)) for inner in alone]
        return min((n for n in found if n is not None), default=None)
    found = [settle(inner, level) for inner in part.parts]
    known = [n for n in found if n is not None]
    return max(known) if len(known) == len(found) else None


def leans(part: Part) -> bool:
    """Say whether the figures, taken as they are, fulfil the claim."""
    if isinstance(part, OneSided):
        beyond = part.side * (part.spread.value - part.limit)
        return beyond > 0 or (beyond == 0 and part.inclusive)
    holds = [leans(inner) for inner in part.parts]
    return all(holds) if part.needs == "all" else any(holds)


def _binomial(hits: int, of: int, limit: float) -> tuple[float, float]:
    """Return p that a share is above the limit, and that it is below."""
    at = min(1.0, max(0.0, limit))
    return float(stats.binom.sf(hits - 1, of, at)), float(stats.binom.cdf(hits, of, at))


def _joined(p: Sequence[float], *, largest: bool) -> float:
    return max(p) if largest else min(1.0, len(p) * min(p))


def _quantile(tail: float, freedom: float) -> float:
    if math.isinf(freedom):
        return float(stats.norm.isf(tail))
    return float(stats.t.isf(tail, freedom))


def _counts(first: int) -> list[int]:
    """Return counts from ``first``: one by one at first, then in steps of a twentieth."""
    found = []
    at = first
    while at <= MOST_REPEATS:
        found.append(at)
        at += max(1, at // 20)
    return found
