"""One-sided tests and how several make one claim; pure functions of numbers."""

import math
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from scipy import special

from tunnelmark.analysis.grouped import Grouping, Summaries
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT
from tunnelmark.model.metrics import METRICS

Quantity = Literal["value", "difference", "ratio", "slope", "relative_slope"]

MOST_REPEATS: Final = 10_000
FEWEST: Final = 4
"""Repeats below which no interval is given: with two Student's is thirteen standard errors wide."""
_MOST_EXPONENT: Final = 700.0
"""What is larger is no float any more."""
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
    bring_ups: int = 1
    bias: float = 0.0
    """So far the value may be from the truth beside its scatter: no repeat lessens that. Infinite:
    has no bound."""
    workers: int = 1

    @property
    def independent(self) -> int:
        """How many independent figures it is of: workers, their bring-ups, or repeats of one."""
        return next((n for n in (self.workers, self.bring_ups) if n > 1), self.repeats)

    @property
    def certain(self) -> bool:
        """Whether the figure is known without any scatter, like a length on the wire."""
        return self.error == 0 and math.isinf(self.freedom) and self.bias == 0

    @property
    def decides(self) -> bool:
        """Whether there are enough repeats, and clocks good enough, to say anything in words."""
        enough = self.error is not None and self.repeats >= FEWEST
        return self.certain or (enough and math.isfinite(self.bias))


def is_certain(metric: str, *, simulated: bool) -> bool:
    """Say whether figures of a metric that are all alike are known without any scatter.

    A length on the wire is what it is. A time, rate or CPU share of a model too: it is the same in
    every repeat where nothing is drawn. A loss that never came is not: a rare one may yet be drawn.
    """
    known = METRICS.get(metric)
    if metric == FRAGMENTATION_POINT:
        return True
    if known is None:
        return False
    modelled = known.scale == "log" or metric.startswith("cpu_")
    return known.exact or (simulated and modelled)


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
        if not self._decides:
            return None
        if self.packets is not None:
            # Half a second that only packets of losses need, not every report.
            from scipy import stats  # noqa: PLC0415 - see above

            found = stats.binomtest(*self.packets).proportion_ci(1 - 2 * tail, method="exact")
            return float(found.low), float(found.high)
        error = self.spread.error
        if error is None or (error == 0 and not self.spread.certain and self._p_alike > tail):
            return None
        half = 0.0 if error == 0 else _quantile(tail, self.spread.freedom) * error
        half += self.spread.bias
        return self.spread.value - half, self.spread.value + half

    def repeats_to_settle(self, tail: float) -> int | None:
        """Return how many repeats would decide four times of five; None: no bearable number.

        In as many bring-ups for each repeat as there are now.
        """
        tail /= self.looks
        error, count = self.spread.error, self.spread.independent
        gap = max(0.0, abs(self.spread.value - self.limit) - self.spread.bias)
        if self.packets is not None:
            return self._packets_to_settle(tail)
        if self.spread.bias and gap == 0:
            return None
        if error == 0 and not self.spread.certain:
            return self._repeats(max(count, math.ceil(-math.log2(tail))))
        if error is None or gap == 0 or error == 0:
            return None
        single = error * math.sqrt(count)
        ratio = max(self.spread.freedom / max(1, count), 1e-3)

        def is_enough(number: int) -> bool:
            freedom = max(1.0, ratio * number)
            # What scipy.stats.t computes by, at a fiftieth of its time a call.
            wanted = -special.stdtrit(freedom, tail) - special.stdtrit(freedom, 1 - _POWER)
            return bool(wanted * single / math.sqrt(number) <= gap)

        counts = _counts(count + 1)
        # Once it is enough, more is.
        at = bisect_left(counts, True, key=is_enough)
        return self._repeats(counts[at]) if at < len(counts) else None

    def _repeats(self, independent: int) -> int:
        each = self.spread.repeats / max(1, self.spread.independent)
        return max(FEWEST, math.ceil(independent * each))

    @property
    def _decides(self) -> bool:
        enough = self.spread.repeats >= FEWEST
        return enough if self.packets is not None else self.spread.decides

    @property
    def _p_alike(self) -> float:
        """Return how likely all figures lie on one side of the median: the sign test."""
        return float(0.5**self.spread.independent)

    def _packets_to_settle(self, tail: float) -> int | None:
        hits, of = (0, 0) if self.packets is None else self.packets
        count = self.spread.repeats
        for needed in _counts(count + 1):
            more = (round(hits * needed / count), round(of * needed / count))
            if min(_binomial(*more, self.limit)) <= tail:
                return max(FEWEST, needed)
        return None

    def _tails(self) -> tuple[float, float]:
        if not self._decides:
            return 1.0, 1.0
        if self.packets is not None:
            above, below = _binomial(*self.packets, self.limit)
            return (above, below) if self.side == 1 else (below, above)
        beyond = self.side * (self.spread.value - self.limit)
        if (bias := self.spread.bias) > 0:
            # Each way the truth is as near to the limit as the bias allows.
            return self._above(beyond - bias)[0], self._above(beyond + bias)[1]
        return self._above(beyond)

    def _above(self, beyond: float) -> tuple[float, float]:
        """Return p for and against a figure that lies so far on the right side of the limit."""
        if self.spread.error is None:
            return 1.0, 1.0
        if self.spread.error == 0:
            holds = beyond > 0 or (beyond == 0 and self.inclusive)
            # A length on the wire is what it is; figures that only happened to be alike are not.
            p = 0.0 if self.spread.certain else self._p_alike
            return (p, 1.0) if holds else (1.0, p)
        at = beyond / self.spread.error
        freedom = self.spread.freedom
        if math.isinf(freedom):
            return float(special.ndtr(-at)), float(special.ndtr(at))
        return float(special.stdtr(freedom, -at)), float(special.stdtr(freedom, at))


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


def counted(part: Part, test: OneSided, *, rejected: bool) -> int:
    """Return how many times the p of a test counts, for a rejection or for a confirmation."""
    if part is test:
        return 1
    if isinstance(part, OneSided):
        return 0
    own = max(counted(inner, test, rejected=rejected) for inner in part.parts)
    return own * len(part.parts) if part.needs == ("all" if rejected else "any") else own


def mean_of(parts: Sequence[Spread]) -> Spread:
    """Return the mean of independent estimates, each counting the same.

    They may scatter differently: degrees of freedom by Welch (1947) and Satterthwaite (1946).
    """
    return combined(parts, [1 / len(parts)] * len(parts))


def combined(parts: Sequence[Spread], weights: Sequence[float]) -> Spread:
    """Return a weighted sum of independent estimates (a planned contrast)."""
    value = math.fsum(w * part.value for w, part in zip(weights, parts, strict=True))
    repeats = min(part.repeats for part in parts)
    ups = min(part.bring_ups for part in parts)
    workers = min(part.workers for part in parts)
    bias = math.fsum(abs(w) * part.bias for w, part in zip(weights, parts, strict=True))
    variances = [
        None if part.error is None else (w * part.error) ** 2
        for w, part in zip(weights, parts, strict=True)
    ]
    known = [v for v in variances if v is not None]
    if len(known) < len(parts):
        return Spread(value, None, 0, repeats, ups, bias, workers)
    total = math.fsum(known)
    if total == 0:
        # Certain only if each of them is.
        freedom = min(part.freedom for part in parts)
        return Spread(value, 0.0, freedom, repeats, ups, bias, workers)
    # As shares of the whole: the squares of very small variances would be no floats any more.
    inverse = math.fsum(
        (v / total) ** 2 / part.freedom for v, part in zip(known, parts, strict=True) if v > 0
    )
    freedom = 1 / inverse if inverse else math.inf
    return Spread(value, math.sqrt(total), freedom, repeats, ups, bias, workers)


def spread(
    values: Sequence[float],
    bring_ups: Sequence[Hashable] | None = None,
    workers: Sequence[Hashable] | None = None,
) -> Spread:
    """Return mean and standard error of repeats.

    Without ``bring_ups`` they are all of one, without ``workers`` all of one computer.
    """
    alone = [0] * len(values)
    named = list(zip(workers or alone, bring_ups or alone, strict=True))
    names = {name: number for number, name in enumerate(dict.fromkeys(named))}
    ups = [names[name] for name in named]
    computers = {name: number for number, name in enumerate(dict.fromkeys(workers or alone))}
    zeros = np.zeros(len(values), dtype=np.int64)
    one = Grouping(
        zeros,
        np.array(ups, dtype=np.int64),
        np.zeros(len(names), dtype=np.int64),
        np.array([computers[worker] for worker, _ in names], dtype=np.int64),
        1,
    )
    found = one.summaries(np.array(values, dtype=np.float64), np.ones(len(values), dtype=np.bool_))
    return one_of(found, 0)


def one_of(found: Summaries, at: int, bias: float = 0.0) -> Spread:
    """Return one group's summary."""
    error = float(found.error[at])
    return Spread(
        float(found.mean[at]),
        None if math.isnan(error) else error,
        float(found.freedom[at]),
        int(found.repeats[at]),
        int(found.bring_ups[at]),
        bias,
        int(found.workers[at]),
    )


def holm(p: Sequence[float], alpha: float) -> list[tuple[bool, float]]:
    """Return for each p whether it is significant, and the level it was held against.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure (1979): the smallest p against
    alpha / m, the next against alpha / (m - 1) …, until the first that fails. Any dependence. All
    behind that one keep its level: at their own an interval could exclude what is undecided.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found = [(False, alpha)] * len(p)
    open_, level = True, alpha
    for rank, index in enumerate(order):
        if open_:
            level = alpha / (len(p) - rank)
            open_ = p[index] <= level
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


def grown(x: float) -> float:
    """Return the ratio minus 1 whose logarithm is x; finite however large x is."""
    return math.expm1(min(x, _MOST_EXPONENT))


def _binomial(hits: int, of: int, limit: float) -> tuple[float, float]:
    """Return p that a share is above the limit, and that it is below."""
    at = min(1.0, max(0.0, limit))
    return float(special.bdtrc(hits - 1, of, at)), float(special.bdtr(hits, of, at))


def _joined(p: Sequence[float], *, largest: bool) -> float:
    return max(p) if largest else min(1.0, len(p) * min(p))


def _quantile(tail: float, freedom: float) -> float:
    if math.isinf(freedom):
        return -float(special.ndtri(tail))
    return -float(special.stdtrit(freedom, tail))


@cache
def _counts(first: int) -> list[int]:
    """Return counts from ``first``: one by one at first, then in steps of a twentieth."""
    found = []
    at = first
    while at <= MOST_REPEATS:
        found.append(at)
        at += max(1, at // 20)
    return found
