"""Figures of a metric as short text in sentences, in the units that people use."""

import math
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.testing import grown
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT
from tunnelmark.model.metrics import METRICS


@dataclass(frozen=True)
class Unit:
    """How a stored unit is shown."""

    factor: float
    """Shown value = stored value times factor."""
    name: str


_SHOWN: Final = {
    "bit/s": Unit(1e-6, "Mbit/s"),
    "ns": Unit(1e-6, "ms"),
    "ratio": Unit(100.0, "%"),
    "byte": Unit(1.0, "bytes"),
    "packet/s": Unit(1.0, "packets/s"),
    "1": Unit(1.0, ""),
}
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


def unit(metric: str) -> Unit:
    """Return how a metric is shown, or the fragmentation point."""
    stored = "byte" if metric == FRAGMENTATION_POINT else METRICS[metric].unit
    return _SHOWN.get(stored, Unit(1.0, stored))


def as_text(value: float, metric: str) -> str:
    """Return ``7.85 Mbit/s`` for a stored value."""
    shown = unit(metric)
    return f"{_digits(value * shown.factor)} {shown.name}".rstrip()


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
    shown = unit(metric)
    name = "percentage points" if shown.name == "%" else shown.name
    if quantity == "slope":
        text = f"{_digits(value * shown.factor * step, sign=True)} {name}".rstrip()
        return f"{text} per {each}"
    return f"{_digits(value * shown.factor, sign=True)} {name}".rstrip()


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
    return f"{value:+z.{places}f}" if sign else f"{value:z.{places}f}"
