"""When a point has been repeated often enough: fixed looks, each with its share of the error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class StopRule:
    """Repeats until the confidence interval of the mean is narrow enough.

    The data are looked at after fixed numbers of repeats only. Looking more than once would make
    the interval too narrow too often, so each look uses a confidence of 1 - (1 - confidence) /
    number of looks (Bonferroni's inequality): over all looks the error stays below the study's.
    """

    relative_half_width: float
    """Half of the interval over the estimate."""
    confidence: float
    min_repeats: int
    max_repeats: int

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of repeats after which the data are looked at, the largest number excluded."""
        # Half as many again each time: few looks, and no more than half of the work is in vain.
        looks = []
        at = self.min_repeats
        while at < self.max_repeats:
            looks.append(at)
            at = max(at + 1, at + at // 2)
        return tuple(looks)

    def half_width(self, values: Sequence[float]) -> float | None:
        """Return the half-width at a look, in the metric's unit; None below two values."""
        if len(values) < 2:  # noqa: PLR2004 - a variance needs two
            return None
        alpha = (1 - self.confidence) / max(1, len(self.looks))
        quantile = float(stats.t.ppf(1 - alpha / 2, len(values) - 1))
        return quantile * float(np.std(values, ddof=1)) / float(np.sqrt(len(values)))

    def precise(self, values: Sequence[float]) -> bool:
        """Say whether valid repeats with these values are enough."""
        half = self.half_width(values)
        if half is None:
            return False
        mean = abs(float(np.mean(values)))
        # A loss of exactly 0 in every repeat has no relative width and nothing left to find out.
        return half <= self.relative_half_width * mean or half == 0

    def next_look(self, repeats: int) -> int:
        """Return up to which repeat to go on after ``repeats`` that were not enough."""
        return next((look for look in self.looks if look > repeats), self.max_repeats)
