"""Trials to estimates: means with intervals, and paired differences to the baseline.

Pure functions over the table of ``store.Result.trials()``. Only valid trials enter an estimate.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl
from scipy import stats

from tunnelmark.analysis.intervals import mean_bootstrap
from tunnelmark.model.metrics import METRICS

Method = Literal["t", "t on logarithms", "bootstrap, BCa", "none"]

_ENOUGH_FOR_BOOTSTRAP: Final = 40
"""With fewer repeats the bootstrap errs more often than Student's t: in simulations of skewed
shares 5 to 13 % at 10 to 20 repeats where 5 % are promised, with 40 both keep to it."""
_SEED: Final = 1
"""The same figures always give the same interval."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, in the metric's own unit."""

    metric: str
    n: int
    value: float
    low: float | None
    """None: too few repeats for an interval."""
    high: float | None
    confidence: float
    method: Method


@dataclass(frozen=True)
class PointEstimates:
    """All that is known of one point, over all blocks that it stands in."""

    point_id: str
    pair_id: str
    tunnel: str
    is_baseline: bool
    link: str
    device: str
    workload: str
    workload_kind: str
    params: Mapping[str, str | int | float | bool]
    """Parameters of the workload that have a value, under their names in the store."""
    path: str
    valid: int
    invalid: int
    estimates: dict[str, Estimate]
    differences: dict[str, Estimate]
    """To the baseline of the same block and repeat: ratio minus 1 for metrics on a log scale."""

    @property
    def payload_bytes(self) -> int | None:
        """Payload of one datagram, where the workload has one."""
        size = self.params.get("payload_bytes")
        return size if isinstance(size, int) else None


def estimate(values: Sequence[float], *, metric: str, confidence: float) -> Estimate | None:
    """Return mean and interval; how it is formed follows from metric and count, not the values.

    Rates and times, which are compared as ratios: Student's t on logarithms. Shares, which are
    skewed near 0, with 40 repeats or more: BCa bootstrap. All others: Student's t. None without a
    value. A value of 0 or below on a log-scale metric falls back to the plain mean.
    """
    if not values:
        return None
    if METRICS[metric].unit == "ratio" and len(values) >= _ENOUGH_FOR_BOOTSTRAP:
        found = mean_bootstrap(values, confidence, seed=_SEED)
        bounds = (found.low, found.high)
        return Estimate(metric, len(values), found.value, *bounds, confidence, "bootstrap, BCa")
    logarithmic = METRICS[metric].scale == "log" and min(values) > 0
    scaled = [math.log(v) for v in values] if logarithmic else list(values)
    centre, half = _t_interval(scaled, confidence)
    back = math.exp if logarithmic else float
    method: Method = "none" if half is None else ("t on logarithms" if logarithmic else "t")
    low = None if half is None else back(centre - half)
    high = None if half is None else back(centre + half)
    return Estimate(metric, len(values), back(centre), low, high, confidence, method)


def difference(
    pairs: Sequence[tuple[float, float]], *, metric: str, confidence: float
) -> Estimate | None:
    """Return the paired difference of (value, baseline): value over baseline - 1 on log metrics."""
    if not pairs:
        return None
    logarithmic = METRICS[metric].scale == "log"
    if logarithmic and any(min(pair) <= 0 for pair in pairs):
        return None
    scaled = [math.log(a / b) if logarithmic else a - b for a, b in pairs]
    centre, half = _t_interval(scaled, confidence)
    back = math.expm1 if logarithmic else float
    method: Method = "none" if half is None else ("t on logarithms" if logarithmic else "t")
    low = None if half is None else back(centre - half)
    high = None if half is None else back(centre + half)
    return Estimate(metric, len(pairs), back(centre), low, high, confidence, method)


def point_estimates(
    trials: pl.DataFrame, *, confidence: float, path: str = "total"
) -> tuple[PointEstimates, ...]:
    """Return every point of a table of trials, in order of tunnel, workload and its parameters."""
    rows = trials.filter(pl.col("path") == path)
    if rows.is_empty():
        return ()
    found = [
        _point(group, rows, confidence, path)
        for _, group in rows.group_by("point_id", "link", "device", maintain_order=True)
    ]
    return tuple(
        sorted(
            found,
            key=lambda p: (
                *(p.link, p.device, not p.is_baseline, p.tunnel, p.workload_kind),
                natural(p.workload),
            ),
        )
    )


def natural(text: str) -> list[tuple[int, float, str]]:
    """Return a key by which ``echo 64`` stands before ``echo 512``."""
    parts = re.findall(r"\d{1,15}(?:\.\d{1,15})?|\D+|\d", text)
    return [(0, float(p), "") if p[0].isdecimal() and p.isascii() else (1, 0.0, p) for p in parts]


def _point(group: pl.DataFrame, rows: pl.DataFrame, confidence: float, path: str) -> PointEstimates:
    first = group.row(0, named=True)
    valid = group.filter(pl.col("valid"))
    estimates, differences = {}, {}
    baseline = rows.filter(
        pl.col("valid") & pl.col("is_baseline") & (pl.col("pair_id") == first["pair_id"])
    )
    for metric in METRICS:
        if metric not in rows.columns:
            continue  # newer than the result
        values = [float(v) for v in valid[metric].drop_nulls()]
        if (found := estimate(values, metric=metric, confidence=confidence)) is not None:
            estimates[metric] = found
        if first["is_baseline"]:
            continue
        paired = valid.join(
            baseline, on=("block_id", "pair_id", "repeat"), suffix="_baseline"
        ).select(metric, f"{metric}_baseline")
        pairs = [(float(a), float(b)) for a, b in paired.drop_nulls().iter_rows()]
        if (found := difference(pairs, metric=metric, confidence=confidence)) is not None:
            differences[metric] = found
    return PointEstimates(
        point_id=first["point_id"],
        pair_id=first["pair_id"],
        tunnel=first["tunnel"],
        is_baseline=first["is_baseline"],
        link=first["link"],
        device=first["device"],
        workload=first["workload"],
        workload_kind=first["workload_kind"],
        params={
            name.removeprefix("param_"): value
            for name, value in first.items()
            if name.startswith("param_") and isinstance(value, str | int | float | bool)
        },
        path=path,
        valid=valid.height,
        invalid=group.height - valid.height,
        estimates=estimates,
        differences=differences,
    )


def _t_interval(values: Sequence[float], confidence: float) -> tuple[float, float | None]:
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:  # noqa: PLR2004 - an interval needs two values
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, float(stats.t.ppf((1 + confidence) / 2, count - 1)) * math.sqrt(variance / count)
