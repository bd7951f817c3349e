"""How far the computers of one result differ: the same thing measured on each of them.

What several computers measured alike is no tunnel over the same link with the same workload: every
worker of a cluster that has labs measures the study's first such point for that (A/A).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tunnelmark.analysis.strata import COMPUTER, computers
from tunnelmark.analysis.testing import grown
from tunnelmark.model.metrics import METRICS

_UP = (COMPUTER, "block_id", "bring_up")


@dataclass(frozen=True)
class Apart:
    """What two computers show of the same thing."""

    metric: str
    computers: int
    highest: str
    lowest: str
    """The computers with the highest and the lowest mean."""
    value: float
    """The highest mean over the lowest, minus 1, of rates and times; else their difference."""
    tunnel: str
    link: str
    device: str
    workload: str

    def exceeds(self, difference: float) -> bool:
        """Say whether computers differ by more than a difference from no tunnel, either way."""
        if METRICS[self.metric].scale == "log":
            if difference <= -1:
                return False  # nothing came through, which is no matter of the computer's speed
            return abs(math.log1p(difference)) < math.log1p(self.value)
        return abs(difference) < self.value


def apart(trials: pl.DataFrame, metrics: Sequence[str]) -> tuple[Apart, ...]:
    """Return how far computers differ in each metric, at the point that most of them measured.

    ``trials`` is ``store.Result.trials()`` after ``set_apart``. Of several such points it is the
    first that was measured. Empty where one computer measured all, or in a simulation.
    """
    rows = trials.filter(
        pl.col("valid") & pl.col("is_baseline") & (pl.col("path") == "total")
    ).with_columns(computers())
    found = (_apart(rows, metric) for metric in metrics if metric in rows.columns)
    return tuple(one for one in found if one is not None)


def _apart(rows: pl.DataFrame, metric: str) -> Apart | None:
    own = rows.filter(pl.col(metric).is_not_null())
    points = own.group_by("point_id", maintain_order=True).agg(pl.col(COMPUTER).n_unique())
    several = points.filter(pl.col(COMPUTER) > 1)
    if several.is_empty():
        return None
    point = several["point_id"][several[COMPUTER].arg_max() or 0]
    own = own.filter(pl.col("point_id") == point)
    relative = METRICS[metric].scale == "log"
    if relative and (own[metric] <= 0).any():
        return None
    figure = pl.col(metric).log() if relative else pl.col(metric)
    means = (
        own.group_by(_UP)
        .agg(figure.mean().alias("mean"))
        .group_by(COMPUTER)
        .agg(pl.col("mean").mean())
        .sort("mean", COMPUTER)
    )
    lowest, highest = means.row(0, named=True), means.row(-1, named=True)
    value = highest["mean"] - lowest["mean"]
    names = own.row(0, named=True)
    return Apart(
        metric,
        means.height,
        highest[COMPUTER],
        lowest[COMPUTER],
        grown(value) if relative else value,
        *(names[name] for name in ("tunnel", "link", "device", "workload")),
    )
