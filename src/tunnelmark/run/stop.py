"""When a point has been repeated often enough; pure functions."""

import math
from collections.abc import Sequence

from scipy import stats

from tunnelmark.model.metrics import METRICS


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
    quantile = float(stats.t.ppf((1 + confidence) / 2, count - 1))
    half = quantile * math.sqrt(variance / count)
    if logarithmic:
        return math.expm1(half)
    if half == 0:
        return 0.0
    return half / abs(mean) if mean else None
