"""Whether the machine changed while the run lasted: the baseline over time."""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import special

from tunnelmark.analysis.testing import grown
from tunnelmark.model.metrics import METRICS


@dataclass(frozen=True)
class Drift:
    """Change of the baseline from the first of its trials to the last, by a straight line."""

    metric: str
    trials: int
    span_s: float
    change: float
    """Ratio minus 1 for metrics that are compared as ratios, otherwise in the metric's unit."""
    low: float
    high: float
    relative: bool
    p: float
    reported: bool = False
    """Whether it may be reported, of all that was looked at together: see ``explore``."""

    @property
    def matters(self) -> bool:
        """Whether it is a relevant difference."""
        return abs(self.change) >= METRICS[self.metric].worth_telling


def baseline_drift(trials: pl.DataFrame, metric: str, *, confidence: float) -> Drift | None:
    """Fit one slope over time to all baseline points, each with a level of its own.

    Valid trials only. None with too few of them, or where all were at the same time. Differences
    to the baseline are paired within a repeat, so a slow drift cancels out; this shows
    whether the plain figures of early and late blocks can be set side by side.
    """
    if metric not in trials.columns:
        return None
    rows = trials.filter(
        (pl.col("path") == "total")
        & pl.col("valid")
        & pl.col("is_baseline")
        & pl.col(metric).is_not_null()
    )
    if rows.is_empty():
        return None
    values = rows[metric].to_numpy().astype(np.float64)
    relative = METRICS[metric].scale == "log" and bool(values.min() > 0)
    if relative:
        values = np.log(values)
    begun = rows["started_at"].dt.epoch("us").to_numpy().astype(np.float64) / 1e6
    _, point = np.unique(
        (rows["point_id"] + "/" + rows["link"] + "/" + rows["device"]).to_numpy(),
        return_inverse=True,
    )
    count = np.bincount(point)
    centred_time = begun - (np.bincount(point, begun) / count)[point]
    centred = values - (np.bincount(point, values) / count)[point]
    freedom = len(values) - len(count) - 1
    spread = float(centred_time @ centred_time)
    if freedom < 1 or spread == 0:
        return None
    slope = float(centred_time @ centred) / spread
    left = centred - slope * centred_time
    error = math.sqrt(float(left @ left) / freedom / spread)
    half = float(special.stdtrit(freedom, (1 + confidence) / 2)) * error
    span = float(begun.max() - begun.min())
    change, low, high = (
        grown(bound) if relative else bound
        for bound in (slope * span, (slope - half) * span, (slope + half) * span)
    )
    p = float(2 * special.stdtr(freedom, -abs(slope) / error)) if error else float(slope == 0)
    return Drift(metric, len(values), span, change, low, high, relative, p)
