"""Figures of a metric as short text in sentences, in the units that people use."""

import math
from typing import Final

from tunnelmark.analysis.testing import grown
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT
from tunnelmark.model.metrics import METRICS

_SHOWN: Final = {
    "bit/s": (1e-6, "Mbit/s"),
    "ns": (1e-6, "ms"),
    "ratio": (100.0, "%"),
    "byte": (1.0, "bytes"),
    "packet/s": (1.0, "packets/s"),
}
"""Stored unit to factor and name."""
_STEPS: Final = (
    ("_packet_s", 1000.0, "1000 packets/s"),
    ("_bit_s", 1e6, "Mbit/s"),
    ("_ratio", 0.1, "10 %"),
    ("_bytes", 100.0, "100 bytes"),
    ("_ns", 1e6, "ms"),
)
"""Ending of a parameter's name, and the step of it that a slope is given for."""
_NOISE: Final = 1e-9
"""In the shown unit: what is smaller is left by rounding in floating point, not measured."""


def unit_of(metric: str) -> str:
    """Return the stored unit of a metric."""
    return "byte" if metric == FRAGMENTATION_POINT else METRICS[metric].unit


def as_text(value: float, metric: str) -> str:
    """Return ``7.85 Mbit/s`` for a stored value."""
    factor, name = _SHOWN.get(unit_of(metric), (1.0, unit_of(metric)))
    return f"{_digits(value * factor)} {name}".removesuffix(" 1")


def change_as_text(value: float, metric: str, quantity: str, along: str | None = None) -> str:
    """Return ``+1.2 %`` for a ratio minus 1, otherwise a difference with its unit.

    A slope is per 100 bytes, per ms or whatever else suits the parameter ``along``.
    """
    if quantity == "ratio":
        return f"{_digits(value * 100, sign=True)} %"
    step, each = _step(along)
    if quantity == "relative_slope":
        ratio = grown(step * math.log1p(value)) if value > -1 else value
        return f"{_digits(ratio * 100, sign=True)} % per {each}"
    factor, name = _SHOWN.get(unit_of(metric), (1.0, unit_of(metric)))
    name = "percentage points" if name == "%" else name
    if quantity == "slope":
        text = f"{_digits(value * factor * step, sign=True)} {name}".removesuffix(" 1")
        return f"{text} per {each}"
    return f"{_digits(value * factor, sign=True)} {name}".removesuffix(" 1")


def _step(along: str | None) -> tuple[float, str]:
    """Return in which steps a parameter is thought of, in stored units, and their name."""
    for ending, size, name in _STEPS:
        if along is not None and along.endswith(ending):
            return size, name
    return 1.0, "unit"


def _digits(value: float, *, sign: bool = False) -> str:
    """Return a number with four significant digits, in powers of ten only where it is huge."""
    if not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < _NOISE:
        return "0"  # also for -0
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude >= 12:  # noqa: PLR2004 - beyond this nobody counts the zeros
        return f"{value:+.3e}" if sign else f"{value:.3e}"
    places = max(0, 3 - magnitude)
    return f"{value:+.{places}f}" if sign else f"{value:.{places}f}"
