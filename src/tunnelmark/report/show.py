"""Figures as text: unit by metric, digits by the interval."""

import math
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimates import Estimate
from tunnelmark.model.metrics import METRICS


@dataclass(frozen=True)
class Unit:
    """How a stored unit is shown."""

    factor: float
    """Shown value = stored value times factor."""
    name: str


_UNITS: Final = {
    "bit/s": Unit(1e-6, "Mbit/s"),
    "ns": Unit(1e-6, "ms"),
    "ratio": Unit(100.0, "%"),
    "1": Unit(1.0, ""),
}
_MOST_DECIMALS: Final = 4
NOTHING: Final = "-"
"""Stands where nothing was measured: missing is not zero."""


def unit(metric: str) -> Unit:
    """Return how a metric is shown."""
    stored = METRICS[metric].unit
    return _UNITS.get(stored, Unit(1.0, stored))


def digits(value: float, half_width: float | None) -> int:
    """Return decimals such that the interval has two significant digits, at most four."""
    # An interval far below a thousandth of the value says nothing more by further digits.
    scale = max(half_width or abs(value) / 100, abs(value) / 10_000)
    if not scale or not math.isfinite(scale):
        return 0
    return max(0, min(_MOST_DECIMALS, 1 - math.floor(math.log10(scale))))


def figure(estimate: Estimate | None) -> str:
    """Return ``7.850 ±0.012``, ``7.85 (n=1)`` or a dash where nothing was measured."""
    if estimate is None:
        return NOTHING
    factor = unit(estimate.metric).factor
    value = estimate.value * factor
    if estimate.low is None or estimate.high is None:
        return f"{value:.{digits(value, None)}f} (n={estimate.n})"
    half = (estimate.high - estimate.low) / 2 * factor
    places = digits(value, half)
    return f"{value:.{places}f} ±{half:.{places}f}"


def change(estimate: Estimate | None) -> str:
    """Return a difference to the baseline as ``+1.2 % [+0.9, +1.5]`` or in the metric's unit."""
    if estimate is None:
        return NOTHING
    relative = METRICS[estimate.metric].scale == "log"
    shown = Unit(100.0, "%") if relative else unit(estimate.metric)
    if not relative and shown.name == "%":
        shown = Unit(100.0, "points")
    value = estimate.value * shown.factor
    if estimate.low is None or estimate.high is None:
        return f"{value:+.{digits(value, None)}f} {shown.name} (n={estimate.n})"
    low, high = estimate.low * shown.factor, estimate.high * shown.factor
    places = digits(value, (high - low) / 2)
    return f"{value:+.{places}f} {shown.name} [{low:+.{places}f}, {high:+.{places}f}]"
