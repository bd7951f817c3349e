"""When a point has been repeated often enough; pure functions."""

import math
from collections.abc import Sequence
from functools import cache

from scipy import stats

from tunnelmark.analysis.sequential import looks
from tunnelmark.model.metrics import METRICS

__all__ = ["confidence_of_a_look", "looks", "relative_half_width"]


def confidence_of_a_look(confidence: float, number_of_looks: int) -> float:
    """Return the confidence of each interval, so that all looks together keep the study's.

    Whoever looks several times and stops when it suits errs more often than each interval says.
    By Bonferroni's inequality the errors of the looks add up to no more than the study's.
    """
    return 1 - (1 - confidence) / max(1, number_of_looks)


def relative_half_width(values: Sequence[float], *, metric: str, confidence: float) -> float | None:
    """Return half of the t interval over the estimate; None where there is none.

    Metrics on a logarithmic scale (rates, times) are judged on it, so the width is that of a ratio.
    Fewer than two values, or a value that the scale does not have, give None.
    """
    count = len(values)
    if count < 2:  # noqa: PLR2004 - an interval needs two values
        return None
    logarithmic = METRICS[metric].scale == "log"
    if logarithmic and min(values) <= 0:
        return None
    scaled = [math.log(value) for value in values] if logarithmic else list(values)
    mean = math.fsum(scaled) / count
    variance = math.fsum((value - mean) ** 2 for value in scaled) / (count - 1)
    half = _quantile(confidence, count) * math.sqrt(variance / count)
    if logarithmic:
        # Beyond e^700 there is no float, and no interval worth the name.
        return math.expm1(half) if half < 700 else math.inf  # noqa: PLR2004
    if half == 0:
        return 0.0
    return half / abs(mean) if mean else None


@cache
def _quantile(confidence: float, count: int) -> float:
    return float(stats.t.ppf((1 + confidence) / 2, count - 1))
