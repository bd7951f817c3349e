"""When a point has been repeated often enough; pure functions."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from scipy import special

from tunnelmark.analysis.sequential import looks
from tunnelmark.model.metrics import METRICS

__all__ = ["Asked", "confidence_of_a_look", "difference_width", "figure_width", "looks"]


@dataclass(frozen=True)
class Asked:
    """How well something is to be known."""

    metric: str
    half_width: float
    """Of the interval: a share of the figure (of a difference: of the ratio or the level), or in
    the metric's stored unit."""
    confidence: float
    relative: bool = True
    least: float = 0.0
    """Never finer than this, in the metric's stored unit."""


def confidence_of_a_look(confidence: float, number_of_looks: int) -> float:
    """Return the confidence of each interval, so that all looks together keep the study's.

    Stopping when the data look good inflates the error rate. By Bonferroni's inequality the errors
    of the looks add up to no more than the study's.
    """
    return 1 - (1 - confidence) / max(1, number_of_looks)


def difference_width(
    own: Sequence[float | None],
    baseline: Sequence[float | None],
    bring_ups: Sequence[int],
    asked: Asked,
) -> float | None:
    """Return half of the interval of the paired difference over what is asked; 1 is good enough.

    All sequences are by repeat. Where the metric is compared as a ratio, a share is of that ratio;
    else of the mean figure. None: too few pairs for an interval. Where no repeat gave a pair, since
    one side lost all every time, further ones would not either: 0.
    """
    metric = METRICS[asked.metric]
    ratio = metric.scale == "log"
    rows = [
        (a, b, up)
        for a, b, up in zip(own, baseline, bring_ups, strict=True)
        if a is not None and b is not None and not (ratio and min(a, b) <= 0)
    ]
    if not rows:
        return 0.0 if own else None
    differences = [math.log(a) - math.log(b) if ratio else a - b for a, b, _ in rows]
    half = _half(differences, [up for _, _, up in rows], asked.confidence)
    level = math.fsum(a + b for a, b, _ in rows) / (2 * len(rows))
    return None if half is None else _share(half, level, asked, ratio=ratio)


def figure_width(
    values: Sequence[float | None], bring_ups: Sequence[int], asked: Asked
) -> float | None:
    """Return half of the interval of a figure over what is asked; 1 is good enough.

    Metrics on a logarithmic scale (rates, times) are judged on it, so the width is that of a ratio.
    None: too few values for an interval. Where no repeat gave a value that the scale has, further
    ones would not either: 0.
    """
    ratio = METRICS[asked.metric].scale == "log"
    rows = [
        (math.log(value) if ratio else value, up)
        for value, up in zip(values, bring_ups, strict=True)
        if value is not None and not (ratio and value <= 0)
    ]
    if not rows:
        return 0.0 if values else None
    half = _half([value for value, _ in rows], [up for _, up in rows], asked.confidence)
    mean = math.fsum(value for value, _ in rows) / len(rows)
    level = math.exp(mean) if ratio else mean
    return None if half is None else _share(half, level, asked, ratio=ratio)


def _share(half: float, level: float, asked: Asked, *, ratio: bool) -> float:
    """Return half of an interval, of a logarithm where ``ratio``, over what is asked of it."""
    if not ratio:
        wanted = asked.half_width * abs(level) if asked.relative else asked.half_width
        return _over(half, max(wanted, asked.least))
    return _over(_grown(half), asked.half_width if asked.relative else asked.half_width / level)


def _half(values: Sequence[float], bring_ups: Sequence[int], confidence: float) -> float | None:
    """Return half of the interval of the mean: that of the bring-ups where there are several."""
    by_up: dict[int, list[float]] = defaultdict(list)
    for value, up in zip(values, bring_ups, strict=True):
        by_up[up].append(value)
    if len(by_up) > 1:
        values = [math.fsum(own) / len(own) for own in by_up.values()]
    count = len(values)
    if count < 2:  # noqa: PLR2004 - an interval needs two values
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return _quantile(confidence, count) * math.sqrt(variance / count)


def _over(half: float, asked: float) -> float:
    if asked:
        return half / asked
    return math.inf if half else 0.0


def _grown(half: float) -> float:
    # Beyond e^700 there is no float, and no interval worth the name.
    return math.expm1(half) if half < 700 else math.inf  # noqa: PLR2004


@cache
def _quantile(confidence: float, count: int) -> float:
    return float(special.stdtrit(count - 1, (1 + confidence) / 2))
