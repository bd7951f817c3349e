"""Which differences a run will see, from how much its figures scatter; pure functions."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import polars as pl
from scipy import stats

from tunnelmark.model.metrics import METRICS

POWER: Final = 0.8
"""A difference is seen if four of five runs detect it (Cohen 1988)."""
_PAIR: Final = ("environment", "block_id", "pair_id", "repeat")
_PLACE: Final = ("environment", "block_id", "tunnel", "workload_kind")


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of a tunnel's paired difference from no tunnel.

    Of the logarithm of the ratio where the metric is compared as one, else in its stored unit.
    """

    repeats: float
    """Between the repeats of one point in one bring-up."""
    bring_ups: float
    """Between bring-ups, of the mean over their points, beyond what the repeats explain."""

    def error(self, *, repeats: int, bring_ups: int, points: int) -> float:
        """Return the standard error of the mean over so many points, repeats and bring-ups."""
        own = self.repeats**2 / (repeats * points)
        # With a single one the mean is of that bring-up only.
        return math.sqrt(own + (self.bring_ups**2 / bring_ups if bring_ups > 1 else 0.0))


def smallest_seen(
    scatter: Scatter, *, repeats: int, bring_ups: int, points: int, level: float
) -> float | None:
    """Return the smallest true difference that four of five runs detect at a two-sided level.

    Of the mean over ``points``, in the unit of ``scatter``. None where so few repeats give no
    interval. By the noncentral t; where there are several bring-ups each of them counts as one.
    """
    freedom = (repeats if bring_ups == 1 else bring_ups) - 1
    if freedom < 1:
        return None
    error = scatter.error(repeats=repeats, bring_ups=bring_ups, points=points)
    limit = float(stats.t.isf(level / 2, freedom))
    low, high = 0.0, 3 * limit + 10
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _detected(middle, limit, freedom) < POWER else (low, middle)
    return high * error


def scatter_of(trials: pl.DataFrame) -> Mapping[str, Scatter]:
    """Return how much the differences from no tunnel scattered in a result, pooled over its points.

    ``trials`` is ``store.Result.trials()``. Of the metrics that were measured at least twice beside
    a baseline in some bring-up; variances by the analysis of variance.
    """
    valid = trials.filter(pl.col("valid") & (pl.col("path") == "total"))
    pairs = valid.filter(~pl.col("is_baseline")).join(
        valid.filter(pl.col("is_baseline")), on=_PAIR, suffix="_baseline", nulls_equal=True
    )
    found = {}
    for name in METRICS:
        if name in pairs.columns and (scatter := _scatter(pairs, name)) is not None:
            found[name] = scatter
    return found


@cache
def typical() -> tuple[Mapping[str, Scatter], str]:
    """Return typical scatter by metric, and in words where it was measured."""
    text = resources.files("tunnelmark.analysis").joinpath("scatter.toml").read_text("utf-8")
    document = tomllib.loads(text)
    return (
        {name: Scatter(**figures) for name, figures in document["metrics"].items()},
        document["source"],
    )


def _detected(distance: float, limit: float, freedom: float) -> float:
    """Return how often a difference of so many standard errors is detected."""
    return float(stats.nct.sf(limit, freedom, distance))


def _scatter(pairs: pl.DataFrame, name: str) -> Scatter | None:
    own, base = pl.col(name), pl.col(f"{name}_baseline")
    ratio = METRICS[name].scale == "log"
    # As a report states them: means over the points of a tunnel, repeat by repeat.
    means = (
        pairs.filter(own.is_not_null() & base.is_not_null())
        .filter((own > 0) & (base > 0) if ratio else pl.lit(value=True))
        .with_columns(((own / base).log() if ratio else own - base).alias("d"))
        .group_by(*_PLACE, "bring_up", "repeat")
        .agg(pl.col("d").mean(), pl.len().alias("points"))
    )
    groups = means.group_by(*_PLACE, "bring_up").agg(
        pl.col("d").mean().alias("mean"),
        pl.col("d").var().alias("var"),
        pl.len().alias("n"),
        pl.col("points").mean(),
    )
    repeated = groups.filter(pl.col("n") > 1)
    if repeated.is_empty():
        return None
    within = _weighted(repeated["var"] * repeated["points"], repeated["n"])
    ups = (
        groups.group_by(*_PLACE)
        .agg(
            pl.col("mean").var().alias("var"),
            (1 / (pl.col("n") * pl.col("points"))).mean().alias("each"),
            pl.len(),
        )
        .filter(pl.col("len") > 1)
    )
    between = 0.0
    if not ups.is_empty():
        between = max(0.0, _weighted(ups["var"] - within * ups["each"], ups["len"]))
    # Figures that were all alike, such as losses of 0, say nothing of how others would scatter.
    return Scatter(math.sqrt(within), math.sqrt(between)) if within + between > 0 else None


def _weighted(variances: pl.Series, counts: pl.Series) -> float:
    """Return the mean of variances, each weighted by its degrees of freedom."""
    return float(np.average(variances.to_numpy(), weights=counts.to_numpy() - 1.0))
