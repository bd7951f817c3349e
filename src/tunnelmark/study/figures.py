"""Figures of a metric as a hypothesis writes them: a number and a unit, always both."""

import re
from collections.abc import Mapping
from typing import Final

from tunnelmark.model.hypothesis import FRAGMENTATION_POINT, Margin
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.quantity import UNITS

_LONGEST: Final = 40
_WRITTEN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(.*)")
_RELATIVE: Final = "% relative"
_SHARES: Final[Mapping[str, float]] = {"%": 0.01, "points": 0.01}


def figure_in(given: object, metric: str) -> float:
    """Return a figure in the metric's stored unit; ``ValueError`` ends ``margin is 5, …``."""
    number, unit = _split(given, metric)
    known = _units(metric)
    if metric_unit(metric) == "ratio":
        known = {"%": 0.01}
    if unit not in known:
        raise ValueError(_wrong(unit, metric, known))
    return number * known[unit]


def margin_in(given: object, metric: str) -> Margin:
    """Return a margin: ``5 %`` is a share of the other's figure, ``1 Mbit/s`` is a difference.

    Of a metric that is a share itself ``5 %`` could be either: it takes ``5 points`` (percentage
    points) or ``5 % relative``.
    """
    number, unit = _split(given, metric)
    share = metric_unit(metric) == "ratio"
    if unit == _RELATIVE or (unit == "%" and not share):
        if number >= 100:  # noqa: PLR2004 - all of it
            raise ValueError("must be below 100 %")
        return Margin(number / 100, relative=True)
    if unit == "%":
        raise ValueError(
            f"which is ambiguous, since {metric} is itself a share: write "
            f'"{number:g} points" or "{number:g} {_RELATIVE}"'
        )
    known = {"points": 0.01} if share else _units(metric)
    if unit not in known:
        raise ValueError(_wrong(unit, metric, [*known, "%" if not share else _RELATIVE]))
    return Margin(number * known[unit], relative=False)


def shift_in(given: object, metric: str) -> Margin:
    """Return by how much one group exceeds another: a margin with a minus where it falls behind."""
    below = isinstance(given, str) and given.strip().startswith("-")
    text = given.strip()[1:].strip() if below and isinstance(given, str) else given
    number, unit = _split(text, metric)
    if unit == _RELATIVE or (unit == "%" and metric_unit(metric) != "ratio"):
        if below and number >= 100:  # noqa: PLR2004 - all of it
            raise ValueError("must be above -100 %")
        return Margin(-number / 100 if below else number / 100, relative=True)
    found = margin_in(text, metric)
    return Margin(-found.value if below else found.value, relative=False)


def metric_unit(metric: str) -> str:
    """Return the stored unit of a metric."""
    return "byte" if metric == FRAGMENTATION_POINT else METRICS[metric].unit


def _split(given: object, metric: str) -> tuple[float, str]:
    example = f'"5 {next(iter(_example(metric)))}"'
    if not isinstance(given, str) and metric_unit(metric) == "1" and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        raise ValueError(f"which has no unit; write it as {example}")  # noqa: TRY004 - one kind
    match = _WRITTEN.fullmatch(given.strip()) if len(given) <= _LONGEST else None
    if match is None:
        raise ValueError(f"must be a number with its unit, such as {example}")
    if not match[2] and metric_unit(metric) != "1":
        raise ValueError(f"which has no unit; write it as {example}")
    return float(match[1]), " ".join(match[2].split())


def _example(metric: str) -> list[str]:
    if metric_unit(metric) == "ratio":
        return ["points"]
    return {"bit/s": ["Mbit/s"], "ns": ["ms"], "1": ["%"]}.get(
        metric_unit(metric), list(_units(metric))
    )


def _units(metric: str) -> Mapping[str, float]:
    stored = metric_unit(metric)
    if stored == "ratio":
        return _SHARES
    if stored == "1":
        return {"": 1.0}
    if stored == "s":
        return {"s": 1.0, "ms": 1e-3, "min": 60.0}
    return UNITS.get(stored, {stored: 1.0})


def _wrong(unit: str, metric: str, known: "Mapping[str, float] | list[str]") -> str:
    units = ", ".join(name or "none" for name in known)
    return f"has the unit {unit!r}; {metric} can have {units}"
