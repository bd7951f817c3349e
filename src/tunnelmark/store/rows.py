"""Trials as rows: typed columns with units in their names, one row per attempt and path."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE, Point, TrialResult

SCHEMA: Final[dict[str, Any]] = {
    "study": pl.String,
    "run_id": pl.String,
    "block_id": pl.String,
    "point_id": pl.String,
    "pair_id": pl.String,
    "trial_id": pl.String,
    "repeat": pl.Int32,
    "bring_up": pl.Int32,
    "attempt": pl.Int32,
    "path": pl.String,
    "started_at": pl.Datetime("us", "UTC"),
    "duration_s": pl.Float64,
    "tunnel": pl.String,
    "tunnel_kind": pl.String,
    "is_baseline": pl.Boolean,
    "link": pl.String,
    "link_kind": pl.String,
    "device": pl.String,
    "workload": pl.String,
    "workload_kind": pl.String,
    "params": pl.String,
    "valid": pl.Boolean,
    "reasons": pl.List(pl.String),
    "checks": pl.String,
    "details": pl.String,
    "samples": pl.List(pl.String),
}
"""Columns of every trial file; behind them ``param_<name>`` and one column per metric."""

METRIC_SCHEMA: Final[dict[str, Any]] = dict.fromkeys(METRICS, pl.Float64)


def to_frame(result: TrialResult, *, study: str, run_id: str, pair_id: str) -> pl.DataFrame:
    """Return the rows of one attempt."""
    point = result.trial.point
    common: dict[str, Any] = {
        "study": study,
        "run_id": run_id,
        "block_id": result.trial.block_id,
        "point_id": point.point_id,
        "pair_id": pair_id,
        "trial_id": result.trial.trial_id,
        "repeat": result.trial.repeat,
        "bring_up": result.trial.bring_up,
        "attempt": result.attempt,
        "started_at": result.started_at,
        "duration_s": result.duration_s,
        **columns_of(point),
        "valid": result.validity.valid,
        "reasons": list(result.validity.reasons),
        "checks": json.dumps([vars(check) for check in result.validity.checks]),
        "details": json.dumps(dict(result.details)),
        "samples": list(result.samples),
    }
    columns = point.workload.columns or point.workload.params
    params = {f"param_{name}": _scalar(value) for name, value in columns.items()}
    # An attempt without a figure still has its row: an invalid trial is kept and shown.
    measured: Sequence[tuple[str, Mapping[str, float | None]]] = [
        (m.path, m.metrics) for m in result.measurements
    ] or [("total", {})]
    rows = []
    for path, metrics in measured:
        if unknown := set(metrics) - set(METRICS):
            raise ValueError(f"{sorted(unknown)} are not in model.metrics")
        figures = {name: metrics.get(name) for name in METRICS}
        rows.append({**common, "path": path, **params, **figures})
    schema = {**SCHEMA, **{name: _type(value) for name, value in params.items()}, **METRIC_SCHEMA}
    return pl.DataFrame(rows, schema=schema, strict=True)


def columns_of(point: Point) -> dict[str, Any]:
    """Return what every row says of its point, but for the workload's parameters one by one."""
    return {
        "tunnel": point.tunnel.label,
        "tunnel_kind": point.tunnel.kind,
        "is_baseline": point.tunnel.kind == BASELINE,
        "link": point.link.label,
        "link_kind": point.link.kind,
        "device": point.device.label,
        "workload": point.workload.label,
        "workload_kind": point.workload.kind,
        "params": json.dumps(dict(point.workload.params), sort_keys=True),
    }


def check_frame(frame: pl.DataFrame, place: str) -> None:
    """Raise ``ResultError`` naming ``place`` if a frame is not one of trials."""
    for name, kind in {**SCHEMA, **METRIC_SCHEMA}.items():
        if name in frame.columns and frame.schema[name] != kind:
            raise ResultError(f"{place}: column {name} is {frame.schema[name]}, must be {kind}")
        if name in SCHEMA and name not in frame.columns:
            raise ResultError(f"{place}: has no column {name}")
    for name in frame.columns:
        if name not in SCHEMA and name not in METRIC_SCHEMA and not name.startswith("param_"):
            raise ResultError(f"{place}: column {name[:80]} is no column of trials")
    for name in ("trial_id", "attempt", "path", "valid", "started_at", "is_baseline"):
        if frame[name].null_count():
            raise ResultError(f"{place}: column {name} has an empty row")


def _scalar(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)


def _type(value: object) -> Any:
    if isinstance(value, bool):
        return pl.Boolean
    if isinstance(value, int):
        return pl.Int64
    if isinstance(value, float):
        return pl.Float64
    # A parameter that is not given has no type of its own; it takes that of the other rows.
    return pl.Null if value is None else pl.String
