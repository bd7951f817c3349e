"""Every curve of a result: where it bends, where loss sets in, where the CPU is used up."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from tunnelmark.analysis.cells import Cell, cells_of, name_of
from tunnelmark.analysis.contrasts import one_cell
from tunnelmark.analysis.knee import Correlation, Knee, knee, rank_correlation
from tunnelmark.analysis.strata import marked
from tunnelmark.model.metrics import METRICS

LOSS: Final = 0.001
"""Loss sets in where clearly more than one packet of a thousand is lost."""
USED_UP: Final = 0.95
"""A CPU is used up where it is clearly busier than this."""
CPUS: Final = ("cpu_device_client_ratio", "cpu_device_server_ratio", "cpu_machine_ratio")


@dataclass(frozen=True)
class Crossing:
    """Between which levels a figure passes a limit, as far as the intervals show."""

    metric: str
    limit: float
    before: float | None
    """Highest level up to which the figure is clearly below the limit; None: there is none."""
    after: float | None
    """Lowest level at which it is clearly above; None: it never is."""


@dataclass(frozen=True)
class Curve:
    """One tunnel, link, device and workload over one parameter that varies."""

    place: str
    along: str
    metric: str
    levels: tuple[float, ...]
    knee: Knee | None
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True)
class Together:
    """How loss or rate goes with the CPU over the points of one tunnel, link and device."""

    place: str
    cpu: str
    metric: str
    correlation: Correlation


def curves(
    trials: pl.DataFrame, metric: str, *, confidence: float, moments: int = 1
) -> tuple[Curve, ...]:
    """Return the curves of a metric over every parameter of which five or more values were run.

    ``trials`` is that of ``store.Result.trials()`` after ``set_apart``.
    """
    others = {
        name: {_key(cell): cell for cell in cells_of(trials, name)}
        for name in ("loss_forward_ratio", "loss_reverse_ratio", *CPUS)
    }
    found = []
    for (place, along), entries in _families(cells_of(trials, metric)).items():
        levels = sorted(entries, key=lambda entry: entry[0])
        pairs = [(level, value) for level, cell in levels for value in cell.values]
        figures = [y for _, y in pairs]
        known = METRICS[metric]
        # What is compared as ratios matters from a share of the curve's usual height on.
        share = float(np.mean(np.abs(figures))) if known.scale == "log" else 1.0
        worth = known.worth_telling * share
        bend = knee([x for x, _ in pairs], figures, confidence=confidence, worth=worth)
        crossings = []
        for name, own in others.items():
            limit = USED_UP if name in CPUS else LOSS
            steps = [(level, own[_key(c)]) for level, c in levels if _key(c) in own]
            if len(steps) == len(levels) and all(cell.figures for _, cell in steps):
                crossings.append(_crossing(name, limit, steps, confidence, moments))
        found.append(
            Curve(place, along, metric, tuple(x for x, _ in levels), bend, tuple(crossings))
        )
    return tuple(found)


def together(
    trials: pl.DataFrame, metrics: Sequence[str], *, confidence: float
) -> tuple[Together, ...]:
    """Return how each metric goes with each CPU figure, over the means of the points of a tunnel.

    A correlation over points that the study chose says what goes together there, and no more: the
    payload drives both.
    """
    found = []
    for cpu in CPUS:
        busy = {_key(cell): cell for cell in cells_of(trials, cpu) if cell.figures}
        for metric in metrics:
            if metric == cpu:
                continue
            groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for cell in cells_of(trials, metric):
                if cell.figures and _key(cell) in busy:
                    place = f"{_place(cell)}, {cell.kinds['workload']}"
                    groups[place].append((_mean(busy[_key(cell)]), _mean(cell)))
            for place, pairs in groups.items():
                one, other = ([pair[i] for pair in pairs] for i in range(2))
                if (own := rank_correlation(one, other, confidence=confidence)) is not None:
                    found.append(Together(place, cpu, metric, own))
    return tuple(found)


def _place(cell: Cell) -> str:
    """Return the tunnel, link and device; those of another stratum are elsewhere."""
    return marked(name_of(cell, without=("workload",)), cell.stratum)


def _families(cells: Sequence[Cell]) -> Mapping[tuple[str, str], list[tuple[float, Cell]]]:
    """Return the cells by place and by each numeric parameter along which they stand in a row."""
    rows: dict[tuple[str, str, str], list[tuple[float, Cell]]] = defaultdict(list)
    for cell in cells:
        if not cell.figures:
            continue
        for along, level in cell.params.items():
            if isinstance(level, bool) or not isinstance(level, int | float):
                continue
            rest = {k: v for k, v in cell.params.items() if k != along}
            place = _place(cell)
            key = repr((cell.kinds["workload"], sorted(rest.items(), key=repr)))
            rows[place, along, key].append((float(level), cell))
    # As many levels as a bend needs.
    long = {key: row for key, row in rows.items() if len({x for x, _ in row}) >= 5}  # noqa: PLR2004
    found: dict[tuple[str, str], list[tuple[float, Cell]]] = {}
    for (place, along, _), row in long.items():
        first = row[0][1]
        kind = first.kinds["workload"]
        beside = [
            other[0][1].params
            for (at, by, _), other in long.items()
            if (at, by, other[0][1].kinds["workload"]) == (place, along, kind)
        ]
        fixed = [
            f"{name} {value}"
            for name, value in first.params.items()
            if name != along and any(params.get(name) != value for params in beside)
        ]
        found[", ".join((place, kind, *fixed)), along] = row
    return found


def _crossing(
    metric: str,
    limit: float,
    steps: Sequence[tuple[float, Cell]],
    confidence: float,
    moments: int,
) -> Crossing:
    # Shared among the levels and both sides: all that is reported of a curve holds together.
    level = (1 - confidence) / (2 * len(steps) * moments)
    before: float | None = None
    clear = True
    after: float | None = None
    for at, cell in steps:
        if clear and _beyond(cell, metric, limit, -1, level):
            before = at
        else:
            clear = False
        if after is None and _beyond(cell, metric, limit, 1, level):
            after = at
    return Crossing(metric, limit, before, after)


def _beyond(cell: Cell, metric: str, limit: float, side: Literal[1, -1], level: float) -> bool:
    return one_cell(cell, metric, limit=limit, side=side, what="").p_confirm <= level


def _key(cell: Cell) -> str:
    return repr((cell.point_id, cell.names["link"], cell.names["device"], cell.stratum))


def _mean(cell: Cell) -> float:
    return sum(cell.values) / len(cell.values)
