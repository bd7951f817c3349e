"""Quantiles of what came: a tail is reported only where enough lies beyond it."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Tails = Mapping[str, tuple[int, str, int]]
"""By metric: its percentile, and how many values each path gives, in words and as a number."""
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


def too_few(metric: str, tails: Tails, *, paths: int = 1, remedy: str = "send more") -> str | None:
    """Return that the values of all ``paths`` together are too few for a metric, or None."""
    if metric not in tails:
        return None
    percent, said, count = tails[metric]
    if count * paths >= (least := needed(percent)):
        return None
    over = f" on each of {paths} paths" if paths > 1 else ""
    return f"{said}{over}, a {percent}th percentile needs at least {least}: {remedy}"
