"""The one door of statistics: contrasts go in, decisions come out, by one policy.

Whatever says that something differs asks here: the first page, the key findings, ``compare``,
``analyse``. Hypotheses, which a study states before its run, have ``judge`` with the same tests.

- A contrast is tested two-sided by the test its interval belongs to, each p times the number of
  moments at which the run could have ended (Bonferroni).
- All contrasts that one output may tell are one family. Where nothing differs, no more than
  1 - confidence of all outputs tell anything; where something does, no more than that share of
  what is reported is false (Benjamini and Hochberg 1995, for figures that go together Benjamini and
  Yekutieli 2001).
- Intervals have the level of the decision, so they never contradict it (false coverage rate,
  Benjamini and Yekutieli 2005).
- What is reported must matter: the difference is at least the metric's ``worth_telling``. An
  interval wholly within it says that there is no relevant difference (Schuirmann 1987).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tunnelmark.analysis.estimate import Estimate, Unit, coarser
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.testing import FEWEST, OneSided, Quantity, Spread, combined, grown
from tunnelmark.model.metrics import METRICS

Outcome = Literal["differs", "alike", "open"]


@dataclass(frozen=True)
class Contrast:
    """One difference that an output may report."""

    metric: str
    spread: Spread
    quantity: Quantity
    """``ratio``: ratio minus 1, or its logarithm if ``logarithmic``."""
    logarithmic: bool
    method: str


@dataclass(frozen=True)
class Decision:
    """What may be said of a contrast."""

    contrast: Contrast
    outcome: Outcome
    value: float
    """Ratio minus 1, or a difference in the metric's stored unit: see ``contrast.quantity``."""
    low: float | None
    """At the level of the decision; None, like ``high``: fewer than four repeats."""
    high: float | None
    confidence: float
    """Of this interval."""
    p: float
    """Corrected for the moments of the run and for the family."""
    to_settle: int | None
    """Of an open one: with so many repeats four of five runs would decide it, if the figures stay
    as they are; None where no bearable number would."""

    @property
    def metric(self) -> str:
        """Return what it is about."""
        return self.contrast.metric


def decide(
    contrasts: Sequence[Contrast], *, confidence: float, moments: int = 1
) -> tuple[Decision, ...]:
    """Decide all contrasts of one output together."""
    tests = [
        OneSided(
            "", c.spread, 0.0, 1, c.quantity, c.method, logarithmic=c.logarithmic, looks=moments
        )
        for c in contrasts
    ]
    # What cannot be tested by design, with too few repeats, is not part of the family.
    asked = [i for i, c in enumerate(contrasts) if c.spread.decides]
    p = {i: _p(tests[i]) for i in asked}
    error = 1 - confidence
    reported, adjusted = _reported(p, error)
    level = error * max(1, reported) / max(1, len(asked))
    return tuple(
        _decision(c, test, level, adjusted.get(i, 1.0))
        for i, (c, test) in enumerate(zip(contrasts, tests, strict=True))
    )


def _p(test: OneSided) -> float:
    if test.spread.error == 0 and test.spread.value == 0:
        return 1.0
    return min(1.0, 2 * min(test.p_confirm, test.p_reject))


def _reported(p: Mapping[int, float], error: float) -> tuple[int, dict[int, float]]:
    """Return how many are reported, and the corrected p of each."""
    if not p:
        return 0, {}
    adjusted = _benjamini_hochberg(list(p.values()))
    found = {i: float(one) for i, one in zip(p, adjusted, strict=True)}
    return sum(one <= error for one in found.values()), found


def _benjamini_hochberg(p: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return p corrected for the false discovery rate (Benjamini and Hochberg 1995).

    As scipy.stats.false_discovery_control, whose import takes as long as the rest of a report.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[::-1]
    ranks = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum.accumulate(values[order] * len(values) / ranks)
    return np.minimum(adjusted, 1.0)


def _decision(contrast: Contrast, test: OneSided, level: float, p: float) -> Decision:
    worth = METRICS[contrast.metric].worth_telling
    value = _back(contrast.spread.value, contrast)
    bounds = test.bounds(level / 2)
    low, high = (None, None) if bounds is None else (_back(end, contrast) for end in bounds)
    outcome: Outcome = "open"
    if low is not None and high is not None:
        if abs(value) >= worth and (low > 0 or high < 0):
            outcome = "differs"
        elif -worth < low and high < worth:
            outcome = "alike"
    settle = _settled(test, value, worth, level) if outcome == "open" else None
    if outcome == "open" and settle is None and contrast.spread.repeats < FEWEST:
        settle = FEWEST
    return Decision(contrast, outcome, value, low, high, 1 - level, p, settle)


def _settled(test: OneSided, value: float, worth: float, level: float) -> int | None:
    """Return how many repeats would show a difference, or that there is none that is relevant."""
    if abs(value) >= worth:
        return test.repeats_to_settle(level / 2)
    near = math.copysign(worth, value)
    limit = math.log1p(near) if test.logarithmic else near
    return replace(test, limit=limit).repeats_to_settle(level / 2)


def _back(value: float, contrast: Contrast) -> float:
    if contrast.logarithmic:
        return grown(value)
    # Nothing is less by more than all of it.
    return max(-1.0, value) if contrast.quantity == "ratio" else value


def corrected(p: Sequence[float], *, moments: int = 1) -> list[float]:
    """Return p of one family as ``decide`` corrects it, for tests that are no contrasts."""
    own = {i: min(1.0, moments * one) for i, one in enumerate(p)}
    return list(_reported(own, 1.0)[1].values())


def to_baseline(
    points: Sequence[PointEstimates], metric: str, *, logarithms: bool | None = None
) -> Contrast | None:
    """Return the difference from no tunnel on average over some points of a tunnel.

    Points of a bring-up share it, so they are no independent figures: the means over the points
    of each bring-up are, or of each repeat where there was one bring-up. Where repeats of a point
    carried nothing there is no logarithm, so all points have the ratio of their means, and with
    ``logarithms`` false in any case. None without a figure.
    """
    relative = METRICS[metric].scale == "log"
    if logarithms is None:
        logarithms = _on_logarithms(points, metric)
    found = _differences(points, metric, ratios=relative and not logarithms)
    own = averaged(found)
    if own is None:
        return None
    method = "t, paired, mean of points" if len(found) > 1 else "t, paired"
    quantity: Quantity = "ratio" if relative else "difference"
    return Contrast(metric, own, quantity, logarithms, method)


def between(
    first: Sequence[PointEstimates], second: Sequence[PointEstimates], metric: str
) -> tuple[Contrast, bool] | None:
    """Return how two tunnels differ, each by its difference to its own baseline (Welch).

    Both on one scale, that of ``to_baseline`` for all their points. With it, whether it is the
    second's against the first's: of ratios of means the larger one is what the other is divided by.
    None where either has no figure, or both are 0.
    """
    logarithms = _on_logarithms([*first, *second], metric)
    own = to_baseline(first, metric, logarithms=logarithms)
    its = to_baseline(second, metric, logarithms=logarithms)
    if own is None or its is None:
        return None
    method = "Welch, each to its baseline"
    if own.quantity != "ratio" or logarithms:
        found = combined([own.spread, its.spread], [1, -1])
        return Contrast(metric, found, own.quantity, logarithms, method), False
    turned = own.spread.value > its.spread.value
    less, more = (its.spread, own.spread) if turned else (own.spread, its.spread)
    if (base := 1 + more.value) <= 0:
        return None
    ratio = (1 + less.value) / base
    # Linearised, as each of the two is: Cochran, Sampling Techniques, section 6.3.
    linear = combined([less, more], [1 / base, -ratio / base])
    return Contrast(metric, replace(linear, value=ratio - 1), "ratio", False, method), turned


def _on_logarithms(points: Sequence[PointEstimates], metric: str) -> bool:
    return METRICS[metric].scale == "log" and all(
        own.logarithmic for own in _differences(points, metric)
    )


def _differences(
    points: Sequence[PointEstimates], metric: str, *, ratios: bool = False
) -> list[Estimate]:
    kept = [p for p in points if not p.broken and metric in p.differences]
    return [(p.ratios if ratios else p.differences)[metric] for p in kept]


def averaged(estimates: Sequence[Estimate]) -> Spread | None:
    """Return the mean of some estimates whose units are common to them: repeats, or bring-ups.

    Where some have finer units than others (a point with a single bring-up left, beside points of
    several), all have those of the coarsest: repeats beside bring-ups would count as independent.
    """
    spreads = [one.spread for one in estimates if one.spread is not None]
    if not spreads or len(spreads) < len(estimates):
        return None
    if len(spreads) == 1:
        return spreads[0]
    units = _alike([one.units for one in estimates if one.units])
    means = [math.fsum(own.values()) / len(own) for own in units]
    value = math.fsum(means) / len(means)
    repeats = min(one.repeats for one in spreads)
    ups = min(one.bring_ups for one in spreads)
    workers = min(one.workers for one in spreads)
    bias = math.fsum(one.bias for one in spreads) / len(spreads)
    if all(one.error == 0 for one in spreads):
        freedom = min(one.freedom for one in spreads)
        return Spread(value, 0.0, freedom, repeats, ups, bias, workers)
    if min(map(len, units)) < 2:  # noqa: PLR2004 - scatter needs two
        return Spread(value, None, 0, repeats, ups, bias, workers)
    error, freedom = _scatter(units, means)
    return Spread(value, error, freedom, repeats, ups, bias, workers)


def _scatter(units: Sequence[Mapping[Unit, float]], means: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of the mean of points with common units, and its freedom.

    By what each unit moves the mean (Liang and Zeger 1986), with each point's deviations as of an
    unbiased variance. Units weigh more where a point has few of them, so they are as many as
    weights of their size are worth (Kish 1965).
    """
    moved: dict[Unit, float] = defaultdict(float)
    weights: dict[Unit, float] = defaultdict(float)
    for own, mean in zip(units, means, strict=True):
        count = len(own)
        share = 1 / (len(units) * count)
        for unit, value in own.items():
            moved[unit] += share * (value - mean) * math.sqrt(count / (count - 1))
            weights[unit] += share
    error = math.sqrt(math.fsum(one**2 for one in moved.values()))
    squares = [one**2 for one in weights.values()]
    worth = math.fsum(squares) ** 2 / math.fsum(one**2 for one in squares)
    return error, round(worth - 1, 9)


_Level = Literal[0, 1, 2]
"""Of units: repeats, bring-ups, computers."""


def _alike(units: Sequence[Mapping[Unit, float]]) -> list[Mapping[Unit, float]]:
    """Return units of one level, the coarsest that any of them has."""
    coarsest = max(map(_level, units), default=0)
    found = list(units)
    for level in range(1, coarsest + 1):
        found = [
            own if _level(own) >= level else coarser(own, computers=level > 1) for own in found
        ]
    return found


def _level(units: Mapping[Unit, float]) -> _Level:
    if any(repeat for *_, repeat in units):
        return 0
    return 1 if any(block for _, block, _, _ in units) else 2
