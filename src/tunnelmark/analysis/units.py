"""Figures of a metric as short text in sentences, in the units that people use."""

import math
from typing import Final

from tunnelmark.model.hypothesis import FRAGMENTATION_POINT
from tunnelmark.model.metrics import METRICS

_SHOWN: Final = {"bit/s": (1e-6, "Mbit/s"), "ns": (1e-6, "ms"), "ratio": (100.0, "%")}
"""Stored unit to factor and name."""


def unit_of(metric: str) -> str:
    """Return the stored unit of a metric."""
    return "byte" if metric == FRAGMENTATION_POINT else METRICS[metric].unit


def as_text(value: float, metric: str, _quantity: str = "value") -> str:
    """Return ``7.85 Mbit/s`` for a stored value."""
    factor, name = _SHOWN.get(unit_of(metric), (1.0, unit_of(metric)))
    return f"{_digits(value * factor)} {name}".removesuffix(" 1")


def change_as_text(value: float, metric: str, quantity: str) -> str:
    """Return ``+1.2 %`` for a ratio minus 1, otherwise a difference with its unit."""
    if quantity == "ratio":
        return f"{_digits(value * 100, sign=True)} %"
    if quantity == "relative_slope":
        return f"{_digits(value * 100, sign=True)} % per unit"
    factor, name = _SHOWN.get(unit_of(metric), (1.0, unit_of(metric)))
    name = "percentage points" if name == "%" else name
    text = f"{_digits(value * factor, sign=True)} {name}".removesuffix(" 1")
    return f"{text} per unit" if quantity == "slope" else text


def _digits(value: float, *, sign: bool = False) -> str:
    """Return a number with four significant digits, not in powers of ten where that can be."""
    if value == 0:
        return "0"  # also for -0
    if not math.isfinite(value):
        return f"{value:g}"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 < magnitude < 12:  # noqa: PLR2004 - beyond this nobody counts the zeros
        return f"{value:+.3e}" if sign else f"{value:.3e}"
    places = max(0, 3 - magnitude)
    return f"{value:+.{places}f}" if sign else f"{value:.{places}f}"
