"""What a metric is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

_WORTH_OF_A_RATIO: Final = 0.01
_WORTH_OF_A_TIME: Final = 0.0025
"""0.1 ms of a round trip of 40 ms: most of it is the line's, which no tunnel can change."""
_WORTH: Final[Mapping[str, float]] = {
    "ratio": 0.001,
    "ns": 100_000.0,
    "byte": 1.0,
    "s/GiB": 0.1,
    "s/10^6": 0.1,
    "1": 0.1,
    "1/s": 1.0,
    "s": 1.0,
}
"""By unit, for metrics that are compared as differences."""


@dataclass(frozen=True)
class Metric:
    """One figure of a trial, as a typed column with its unit in the name."""

    name: str
    """Column name, ending in the unit."""
    title: str
    unit: str
    """Unit as shown: ``Mbit/s`` figures are stored in bit/s and scaled by the report."""
    definition: str
    source: str
    better: Literal["higher", "lower", "neither"] = "neither"
    scale: Literal["linear", "log"] = "linear"
    """Scale on which differences are formed: rates and times are compared as ratios."""
    headline: bool = False
    """Shown first in reports; a family without one shows its first figures."""
    worth: float | None = None
    """Smallest relevant difference, where it is not the usual one of the unit."""
    one_clock: bool = False
    """Made of one-way delays: where client and server have clocks of their own it is known only
    with the error of these clocks, ``clock_error``."""
    clock_error: str | None = None
    """Metric that has this one's error by two clocks, all of a trial's packets off the same way.
    None: with two clocks it is not reported."""
    clock_errors: int = 1
    """How many such errors it may have in it."""
    nothing: float | None = None
    """Figure of a trial in which nothing came through; None: another metric shows that."""
    exact: bool = False
    """Counted packet by packet on the wire: the same packet always has the same figure."""

    @property
    def worth_telling(self) -> float:
        """Smallest difference that a report states: ratio minus 1 on a log scale, else in the unit.

        Below it a difference may be certain and still matters to nobody.
        """
        if self.worth is not None:
            return self.worth
        if self.scale == "log":
            return _WORTH_OF_A_TIME if self.unit == "ns" else _WORTH_OF_A_RATIO
        return _WORTH.get(self.unit, 0.0)
