"""The points that a selection means, with the figures of their repeats."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tunnelmark.analysis.columns import clock_errors
from tunnelmark.analysis.packets import Packets, packets
from tunnelmark.analysis.strata import (
    APART,
    COMPUTER,
    LABEL,
    STRATUM,
    computers,
    labelled,
    marked,
)
from tunnelmark.model.block import Stratum
from tunnelmark.model.hypothesis import Selection, param_fits
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE

Slot = tuple[str, str, int, int]
"""Computer, block, bring-up and repeat: what was measured side by side."""
_Beside = tuple[str, str, Slot]
"""Environment, what a point and its baseline have in common, and when."""

_PLACE: Final = ("point_id", "link", "device")
_REPEAT: Final = (*_PLACE, "block_id", "bring_up", "repeat")
_NEEDED: Final = (
    *_REPEAT,
    *("environment", "pair_id", "is_baseline", "valid", LABEL, STRATUM, APART),
    *(f"{axis}{kind}" for axis in ("tunnel", "link", "workload") for kind in ("", "_kind")),
)
_LOSSES: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_ERROR: Final = "_error"
"""Column of how far a figure may be off by the error of two clocks."""


@dataclass(frozen=True)
class Off:
    """How far figures may be from the truth by the error of two clocks, all the same way."""

    by: float = 0.0
    """In the metric's unit, at most; 0 with one clock."""
    logarithm: float = 0.0
    """Of their logarithms; infinite where the error is as large as a figure."""

    def on(self, *, logarithmic: bool) -> float:
        """Return it on the scale on which figures are compared."""
        return self.logarithm if logarithmic else self.by

    def also(self, figure: float, error: float) -> "Off":
        """Return it with one more figure."""
        # Downwards a logarithm moves further than upwards, so that is the bound of both.
        moved = -math.log1p(-error / figure) if error < figure else math.inf
        return Off(max(self.by, error), max(self.logarithm, moved if error > 0 else 0.0))


@dataclass(frozen=True)
class Cell:
    """One point with one metric's figure of every valid repeat."""

    point_id: str
    names: Mapping[str, str]
    """``tunnel``, ``link``, ``device``, ``workload`` to labels."""
    kinds: Mapping[str, str]
    params: Mapping[str, object]
    """Columns of the workload that have a value."""
    figures: Mapping[Slot, float]
    baseline: Mapping[Slot, float]
    """Of the baseline beside it, where there is one."""
    baseline_id: str | None
    packets: Packets | None
    shown: str = ""
    """The tunnel's name in reports, with its stratum and what was chosen."""
    stratum: Stratum = Stratum.NAMESPACES
    """Where the figures come from; those of others stand beside none of these."""
    apart: str = ""
    """``in environment …``, if it is another than the first of the result: likewise."""
    off: Off = Off()
    """Of ``figures``."""
    baseline_off: Off = Off()
    """Of ``baseline``."""

    @property
    def values(self) -> list[float]:
        """Return the figures of all repeats."""
        return list(self.figures.values())

    @property
    def bring_ups(self) -> list[tuple[str, str, int]]:
        """Return which bring-up each of ``values`` is of, the computer first."""
        return [slot[:3] for slot in self.figures]


def cells_of(trials: pl.DataFrame, metric: str, *, path: str = "total") -> tuple[Cell, ...]:
    """Return all points of a result; one without a valid figure of the metric has no figures.

    ``trials`` is ``store.Result.trials()`` after ``set_apart``. Of a repeat that has several valid
    attempts the first counts. A metric that the result does not have gives nothing.
    """
    if metric not in trials.columns:
        return ()
    params = [name for name in trials.columns if name.startswith("param_")]
    details = ["details"] if metric in _LOSSES else []
    kept = dict.fromkeys((*_NEEDED, *params, *details, _ERROR, metric))
    errors = pl.Series(_ERROR, clock_errors(trials, metric))
    rows = (
        labelled(trials)
        .with_columns(errors)
        .filter(pl.col("path") == path)
        .select(*kept, computers())
    )
    counted = rows.filter(pl.col("valid") & pl.col(metric).is_not_null()).unique(
        _REPEAT, keep="first", maintain_order=True
    )
    beside: dict[_Beside, tuple[str, float, float]] = {
        (row["environment"], row["pair_id"], _slot(row)): (
            row["point_id"],
            float(row[metric]),
            row[_ERROR],
        )
        for row in counted.filter(pl.col("is_baseline")).iter_rows(named=True)
    }
    own = counted.partition_by(*_PLACE, as_dict=True)
    cells = [
        _cell(group, own.get(place, counted.clear()), metric, path, beside)
        for place, group in rows.group_by(*_PLACE, maintain_order=True)
    ]
    # What never gives the metric (a workload without delays, the CPU of no tunnel) lacks nothing.
    giving = {_sort(cell) for cell in cells if cell.figures}
    return tuple(cell for cell in cells if _sort(cell) in giving)


def chosen(cells: Iterable[Cell], selection: Selection) -> tuple[Cell, ...]:
    """Return the cells that a selection means."""
    return tuple(
        cell
        for cell in cells
        if all(cell.names[axis] in labels for axis, labels in selection.labels.items())
        and all(param_fits(cell.params.get(key), want) for key, want in selection.params.items())
    )


def matched(
    first: Sequence[Cell], second: Sequence[Cell], differing: Collection[str]
) -> tuple[tuple[Cell, Cell], ...]:
    """Return pairs of cells that agree in everything but the ``differing`` axes and columns.

    Workloads that differ in kind agree if the columns that both have agree.
    """
    return tuple(
        (one, other)
        for one in first
        for other in second
        if one is not other and _agree(one, other, differing)
    )


def name_of(cell: Cell, *, without: Collection[str] = ()) -> str:
    """Return ``8 Mbit/s 41 ms, udp_echo 64`` for messages."""
    shown = ("tunnel", "link", "device", "workload")
    parts = [*(cell.names[axis] for axis in shown if axis not in without), cell.apart]
    name = ", ".join(part for part in parts if part not in {"", "host"})
    return marked(name, cell.stratum)


def title_of(metric: str) -> str:
    """Return what a metric, or the fragmentation point, is called in a message."""
    known = METRICS.get(metric)
    return known.title if known else "fragmentation point"


def _agree(one: Cell, other: Cell, differing: Collection[str]) -> bool:
    axes = [axis for axis in ("tunnel", "link", "device") if axis not in differing]
    if (one.stratum, one.apart) != (other.stratum, other.apart):
        return False
    if any(one.names[a] != other.names[a] for a in axes):
        return False
    if "workload" not in differing:
        if one.kinds["workload"] != other.kinds["workload"]:
            return False
        return _without(one.params, differing) == _without(other.params, differing)
    common = (one.params.keys() & other.params.keys()) - set(differing)
    return all(one.params[key] == other.params[key] for key in common)


def _without(params: Mapping[str, object], keys: Collection[str]) -> dict[str, object]:
    return {key: value for key, value in params.items() if key not in keys}


def _sort(cell: Cell) -> tuple[str, bool]:
    return cell.kinds["workload"], cell.kinds["tunnel"] == BASELINE


def _cell(
    every: pl.DataFrame,
    group: pl.DataFrame,
    metric: str,
    path: str,
    beside: Mapping[_Beside, tuple[str, float, float]],
) -> Cell:
    first: dict[str, Any] = every.row(0, named=True)
    figures: dict[Slot, float] = {}
    baseline: dict[Slot, float] = {}
    ids: set[str] = set()
    off = baseline_off = Off()
    # Only losses are judged by their packets, and the details of a trial are long.
    counted: Packets | None = Packets() if metric in _LOSSES else None
    for row in group.iter_rows(named=True):
        slot = _slot(row)
        figures[slot] = float(row[metric])
        off = off.also(figures[slot], row[_ERROR])
        key = (row["environment"], row["pair_id"], slot)
        if not row["is_baseline"] and (found := beside.get(key)):
            ids.add(found[0])
            baseline[slot] = found[1]
            baseline_off = baseline_off.also(*found[1:])
        if counted is not None:
            own = packets(row["details"] or "{}", path)
            counted = None if own is None else counted + own
    return Cell(
        point_id=first["point_id"],
        names={
            "tunnel": first[LABEL],
            **{axis: first[axis] for axis in ("link", "device", "workload")},
        },
        kinds={
            "tunnel": first["tunnel_kind"],
            "link": first["link_kind"],
            "workload": first["workload_kind"],
        },
        params={
            name.removeprefix("param_"): _plain(first[name])
            for name in every.columns
            if name.startswith("param_") and first[name] is not None
        },
        figures=figures,
        baseline=baseline,
        baseline_id=ids.pop() if len(ids) == 1 else None,
        packets=counted,
        shown=first["tunnel"],
        stratum=Stratum(first[STRATUM]),
        apart=first[APART],
        off=off,
        baseline_off=baseline_off,
    )


def _slot(row: Mapping[str, Any]) -> Slot:
    return row[COMPUTER], row["block_id"], row["bring_up"], row["repeat"]


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
