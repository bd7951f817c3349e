"""Trials as rows: typed columns with units in their names, one row per attempt and path."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE, Point, TrialResult
from tunnelmark.store.values import check_values

_LARGEST: Final = 1e18
"""Of a figure, in any unit: 31 years in nanoseconds."""
SCHEMA: Final[dict[str, Any]] = {
    "study": pl.String,
    "run_id": pl.String,
    "worker": pl.String,
    "environment": pl.String,
    "stratum": pl.String,
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

PARAM: Final = "param_"
"""Start of the names of the columns of a workload's parameters."""

METRIC_SCHEMA: Final[dict[str, Any]] = dict.fromkeys(METRICS, pl.Float64)


@dataclass(frozen=True)
class Origin:
    """Where and in which run trials were measured."""

    study: str
    run_id: str
    worker: str
    """Name of the computer."""
    environment: str
    """Key of ``Manifest.environments``."""


def to_frame(result: TrialResult, *, origin: Origin, pair_id: str) -> pl.DataFrame:
    """Return the rows of one attempt."""
    return frame_of(to_rows(result, origin=origin, pair_id=pair_id))


def to_rows(result: TrialResult, *, origin: Origin, pair_id: str) -> list[dict[str, Any]]:
    """Return the rows of one attempt, one for each path; figures that there are none of left out.

    Values are of JSON, but for ``started_at``.
    """
    point = result.trial.point
    columns = point.workload.columns or point.workload.params
    common: dict[str, Any] = {
        **vars(origin),
        "stratum": result.stratum.value,
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
        **{f"{PARAM}{name}": _scalar(value) for name, value in columns.items()},
    }
    # An attempt without a figure still has its row: an invalid trial is kept and shown.
    measured: Sequence[tuple[str, Mapping[str, float | None]]] = [
        (m.path, m.metrics) for m in result.measurements
    ] or [("total", {})]
    rows = []
    for path, metrics in measured:
        if unknown := set(metrics) - set(METRICS):
            raise ValueError(f"{sorted(unknown)} are not in model.metrics")
        figures = {name: value for name, value in metrics.items() if value is not None}
        rows.append({**common, "path": path, **figures})
    return rows


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame; raises what polars raises for values that are not of their column."""
    params = dict.fromkeys(name for row in rows for name in row if name.startswith(PARAM))
    types = {name: _common_type([row.get(name) for row in rows]) for name in params}
    schema = {**SCHEMA, **types, **METRIC_SCHEMA}
    there, nothing = set[str]().union(*rows), [None] * len(rows)
    # Column by column: most are empty, and rows with all of them would fill the memory.
    return pl.DataFrame(
        [
            pl.Series(
                name,
                [_fitting(row.get(name), kind) for row in rows] if name in there else nothing,
                kind,
                strict=True,
            )
            for name, kind in schema.items()
        ]
    )


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


def is_column(name: str) -> bool:
    """Say whether trials may have a column of this name."""
    return name in SCHEMA or name in METRIC_SCHEMA or name.startswith(PARAM)


def check_frame(frame: pl.DataFrame, place: str) -> None:
    """Raise ``ResultError`` naming ``place`` if a frame is not one of trials."""
    found = frame.schema  # made again by each call
    for name, kind in {**SCHEMA, **METRIC_SCHEMA}.items():
        if name in found and found[name] != kind:
            raise ResultError(f"{place}: column {name} is {found[name]}, must be {kind}")
        if name in found and kind == pl.Float64 and not frame[name].drop_nulls().is_finite().all():
            raise ResultError(f"{place}: column {name} has a value that is no finite number")
        if name in found and kind == pl.Float64 and bool((frame[name].abs() > _LARGEST).any()):
            raise ResultError(
                f"{place}: column {name} has a value above {_LARGEST:g}, which no figure has"
            )
        if name in SCHEMA and name not in found:
            raise ResultError(f"{place}: has no column {name}")
    for name in found:
        if not is_column(name):
            raise ResultError(f"{place}: column {name[:80]} is not a trial column")
    check_values(frame, frozenset(SCHEMA), place)


def _scalar(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)


def _common_type(values: Sequence[object]) -> Any:
    found = {_type(value) for value in values} - {pl.Null}
    if found == {pl.Int64, pl.Float64}:
        return pl.Float64
    # A parameter that is not given has no type of its own; it takes that of the other rows.
    return pl.Null if not found else found.pop() if len(found) == 1 else pl.String


def _fitting(value: Any, kind: Any) -> Any:
    """Return a value as its column has it: JSON and a study write 1.0 as 1."""
    if kind == pl.Float64 and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == pl.String and isinstance(value, int | float):
        return str(value)
    return value


def _type(value: object) -> Any:
    if isinstance(value, bool):
        return pl.Boolean
    if isinstance(value, int):
        return pl.Int64
    if isinstance(value, float):
        return pl.Float64
    return pl.Null if value is None else pl.String
