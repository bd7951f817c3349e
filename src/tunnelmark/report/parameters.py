"""Parameters of a workload as a reader wants them: title, unit and value in words."""

from dataclasses import dataclass
from typing import Final

Value = str | int | float | bool


@dataclass(frozen=True)
class Parameter:
    """How a stored parameter is shown."""

    title: str
    """In words, without unit."""
    unit: str
    factor: float
    """Shown value = stored value times factor."""

    @property
    def heading(self) -> str:
        """Return ``payload size [byte]``."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


_TITLES: Final = {
    "payload_bytes": "payload size",
    "frame_bytes": "frame size",
    "gap_ns": "gap",
    "duration_ns": "duration",
    "load": "load",
}
# Longest first: ``_bit_s`` ends in ``_s`` too.
_UNITS: Final = (
    ("_packet_s", "packets/s", 1.0),
    ("_bit_s", "Mbit/s", 1e-6),
    ("_ratio", "%", 100.0),
    ("_bytes", "bytes", 1.0),
    ("_ns", "ms", 1e-6),
)


def parameter(name: str) -> Parameter:
    """Return how the parameter stored as ``name`` is shown; its unit is the end of the name."""
    for ending, unit, factor in _UNITS:
        if name.endswith(ending):
            title = _TITLES.get(name, name.removesuffix(ending).replace("_", " "))
            return Parameter(title, unit, factor)
    return Parameter(_TITLES.get(name, name.replace("_", " ").replace(".", " ")), "", 1.0)


def number(name: str, value: Value) -> float | None:
    """Return a value on a figure's axis; None for words, which have no place on one."""
    if isinstance(value, bool | str):
        return None
    return value * parameter(name).factor


def in_words(name: str, value: Value) -> str:
    """Return ``5 ms`` or ``random``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    shown = parameter(name)
    return f"{value * shown.factor:g} {shown.unit}".strip()
