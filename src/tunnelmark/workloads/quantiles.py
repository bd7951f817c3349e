"""Quantiles of what came: a tail is reported only where enough lies beyond it."""

from typing import Final

import numpy as np
import numpy.typing as npt

BEYOND: Final = 3
"""Values that must lie above a percentile of the tail, or it is as good as the maximum."""


def quantile(values: npt.NDArray[np.int64], percent: float, *, spent: bool = False) -> float | None:
    """Return a percentile with linear interpolation; None without values.

    ``spent``: nobody needs the values any more, and their order may change.
    """
    if not len(values):
        return None
    return float(np.percentile(values, percent, overwrite_input=spent))


def tail(values: npt.NDArray[np.int64], percent: float, *, spent: bool = False) -> float | None:
    """Return a percentile above the median; None where too few values were seen for it."""
    return quantile(values, percent, spent=spent) if len(values) >= needed(percent) else None


def needed(percent: float) -> int:
    """Return how many values a percentile of the tail needs: 300 for the 99th."""
    return round(BEYOND * 100 / (100 - percent))


def withheld_tail(metric: str, packets: int) -> str | None:
    """Return why a trial of so many packets never gives this metric, or None."""
    if not metric.endswith("_p99_ns"):
        return None
    return too_few(f"packets is {packets}", packets, 99, remedy="send more")


def too_few(said: str, count: int, percent: int, *, remedy: str) -> str | None:
    """Return that ``count`` values, ``said`` in words, give no such percentile, or None."""
    if count >= (least := needed(percent)):
        return None
    return f"{said}, a {percent}th percentile needs at least {least}: {remedy}"
