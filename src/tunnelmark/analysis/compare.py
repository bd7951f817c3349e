"""Two runs of a study beside each other: what differs around them, then what differs in figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from tunnelmark.analysis.cells import Cell, cells_of, name_of
from tunnelmark.analysis.contrasts import contrast
from tunnelmark.analysis.emulated import set_apart
from tunnelmark.analysis.hypotheses import back
from tunnelmark.analysis.testing import OneSided, holm
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.metrics import METRICS


@dataclass(frozen=True)
class Run:
    """What is known of one of the two."""

    study: str
    scale: str
    environment: Mapping[str, str]
    trials: pl.DataFrame
    """``store.Result.trials()``."""
    blocks: Sequence[BlockRecord]
    moments: int = 1
    """At how many moments the run could end a point: ``sequential.chances``."""


@dataclass(frozen=True)
class Change:
    """How one metric of one point differs: the second run against the first."""

    tunnel: str
    link: str
    device: str
    workload: str
    metric: str
    first: float
    """Mean of the first run, in the metric's stored unit."""
    second: float
    repeats: tuple[int, int]
    quantity: Literal["ratio", "difference"]
    value: float
    """Ratio minus 1, or a difference in the metric's stored unit: see ``quantity``."""
    low: float | None
    """None: too few repeats for an interval."""
    high: float | None
    clear: bool
    """Whether it differs from no change after Holm's correction over all changes."""
    method: str


@dataclass(frozen=True)
class Comparison:
    """Two runs beside each other."""

    environment: tuple[tuple[str, str | None, str | None], ...]
    """Name and both values where they differ; None: only the other has it."""
    unlike: tuple[str, ...]
    """Why the figures do not answer the same question; empty if they do."""
    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    """Points that only one run measured."""
    only_second: tuple[str, ...]
    confidence: float


def compare(
    first: Run,
    second: Run,
    metrics: Sequence[str],
    *,
    confidence: float,
    to_baseline: bool = False,
) -> Comparison:
    """Compare all points that both runs measured in all metrics that both gave.

    The runs are independent, so nothing is paired: Welch's interval of the two means, rates and
    times as ratios. ``to_baseline``: each figure first over (or minus) no tunnel of its own block
    and repeat, so that a faster machine falls out and what the tunnel does to it is compared.
    """
    own, other = (_located(run) for run in (first, second))
    changes: list[tuple[Change, float]] = []
    moments = max(first.moments, second.moments)
    places: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for metric in metrics:
        cells = [_by_place(trials, metric) for trials in (own, other)]
        for found, names in zip(cells, places, strict=True):
            names |= {place: _name(cell) for place, cell in found.items()}
        for place, cell in cells[0].items():
            beside = cells[1].get(place)
            if beside is not None and cell.figures and beside.figures:
                found_change = _change(
                    cell, beside, metric, confidence, moments, to_baseline=to_baseline
                )
                changes += [] if found_change is None else [found_change]
    clear = holm([p for _, p in changes], 1 - confidence)
    return Comparison(
        environment=_differing(first.environment, second.environment),
        unlike=_unlike(first, second, changes=bool(changes)),
        changes=tuple(
            replace(change, clear=sure)
            for (change, _), (sure, _) in zip(changes, clear, strict=True)
        ),
        only_first=tuple(name for place, name in places[0].items() if place not in places[1]),
        only_second=tuple(name for place, name in places[1].items() if place not in places[0]),
        confidence=confidence,
    )


def _unlike(first: Run, second: Run, *, changes: bool) -> tuple[str, ...]:
    found = []
    for what in ("study", "scale"):
        one, other = getattr(first, what), getattr(second, what)
        if one != other:
            found.append(f"the {what} is {one} there and {other} here")
    emulated = [{block.emulated for block in run.blocks} for run in (first, second)]
    if emulated[0] != emulated[1] and all(emulated):
        found.append("one ran on an emulated CPU where the other did not")
    if not changes:
        found.append("no point and metric was measured by both")
    return tuple(found)


def _differing(
    first: Mapping[str, str], second: Mapping[str, str]
) -> tuple[tuple[str, str | None, str | None], ...]:
    names = dict.fromkeys((*first, *second))
    return tuple(
        (name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    )


def _located(run: Run) -> pl.DataFrame:
    return set_apart(run.trials, run.blocks)


def _by_place(trials: pl.DataFrame, metric: str) -> dict[str, Cell]:
    return {
        repr((cell.point_id, cell.names["link"], cell.names["device"], cell.emulated)): cell
        for cell in cells_of(trials, metric)
    }


def _name(cell: Cell) -> str:
    return name_of(cell)


def _change(
    first: Cell,
    second: Cell,
    metric: str,
    confidence: float,
    moments: int,
    *,
    to_baseline: bool,
) -> tuple[Change, float] | None:
    if to_baseline and (not first.baseline or not second.baseline):
        return None
    one, other = (_of_run(cell, i, to_baseline) for i, cell in enumerate((first, second)))
    found = contrast(other, one, metric)
    ratio = found.quantity == "ratio"
    test = OneSided(
        "", found.spread, 0.0, 1, found.quantity, found.method, logarithmic=ratio, looks=moments
    )
    bounds = test.bounds((1 - confidence) / 2)
    low, high = (None, None) if bounds is None else (back(b, test) for b in bounds)
    change = Change(
        tunnel=first.names["tunnel"] + (", emulated" if first.emulated else ""),
        link=first.names["link"],
        device=first.names["device"],
        workload=first.names["workload"],
        metric=metric,
        first=_mean(first),
        second=_mean(second),
        repeats=(len(first.figures), len(second.figures)),
        quantity="ratio" if ratio else "difference",
        value=back(found.spread.value, test),
        low=low,
        high=high,
        clear=False,
        method=found.method,
    )
    return change, min(1.0, 2 * min(test.p_confirm, test.p_reject))


def _of_run(cell: Cell, number: int, to_baseline: bool) -> Cell:
    """Return a cell whose repeats are those of its own run: the ids of blocks are the same in both.

    Without its baseline unless it is asked for.
    """
    return replace(
        cell,
        figures={(f"{number}/{block}", n): v for (block, n), v in cell.figures.items()},
        baseline={(f"{number}/{block}", n): v for (block, n), v in cell.baseline.items()}
        if to_baseline
        else {},
    )


def _mean(cell: Cell) -> float:
    return sum(cell.values) / len(cell.values)


def headline_metrics(*frames: pl.DataFrame) -> tuple[str, ...]:
    """Return the metrics that are told first, of those that all tables have figures of."""
    return tuple(
        name
        for name, metric in METRICS.items()
        if metric.headline
        and all(name in frame.columns and frame[name].count() for frame in frames)
    )
