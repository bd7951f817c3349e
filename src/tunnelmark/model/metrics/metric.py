"""What a metric is."""

from dataclasses import dataclass
from typing import Literal


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
    """Drawn and told first in reports; a family without one shows its first figures."""
