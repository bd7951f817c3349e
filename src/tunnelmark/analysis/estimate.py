"""A figure with its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tunnelmark.analysis.testing import Spread

Method = Literal["t", "t on logarithms", "t of a ratio of means", "none"]
Unit = tuple[str, str, int, int]
"""What is independent: the computer where there are several (``""`` and 0 behind it), else block
and bring-up (0 behind it), or also the repeat where there is one bring-up only."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, in the metric's own unit."""

    metric: str
    n: int
    value: float
    low: float | None
    """None: fewer than four repeats, or all of them alike: nothing is known of their scatter. But
    see ``testing.is_certain``."""
    high: float | None
    confidence: float
    method: Method
    bring_ups: int = 1
    """In so many starts of the tunnel; the interval of a single one is of its repeats only."""
    workers: int = 1
    """On so many computers; the interval of a single one is of that one."""
    between: float | None = None
    """Share of the variance of single figures that lies between bring-ups; None with one."""
    spread: Spread | None = None
    """The same on the scale on which it is judged; None where there is no interval of ours."""
    clock_error: float = 0.0
    """So far each end of the interval is moved out by the error of two clocks; of values only."""
    logarithmic: bool = False
    """Whether that scale is of logarithms; that of a difference is else the ratio less 1, where
    the metric is compared as one."""
    units: Mapping[Unit, float] = field(default_factory=dict, repr=False, compare=False)
    """Mean of each independent unit, on that scale; of differences only."""


def means(own: Mapping[Unit, Sequence[float]]) -> dict[Unit, float]:
    """Return the mean of the figures of each unit."""
    return {unit: math.fsum(values) / len(values) for unit, values in own.items()}


def coarser(units: Mapping[Unit, float], *, computers: bool) -> dict[Unit, float]:
    """Return the means of whole bring-ups, or of all that a computer measured."""
    found: dict[Unit, list[float]] = {}
    for (computer, block, up, _), value in units.items():
        unit = (computer, "", 0, 0) if computers else (computer, block, up, 0)
        found.setdefault(unit, []).append(value)
    return means(found)
