"""Two runs of a study beside each other: what differs around them, then what differs in figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from tunnelmark.analysis.cells import Cell, Slot, cells_of, name_of
from tunnelmark.analysis.contrasts import contrast, effects
from tunnelmark.analysis.door import Contrast, Decision, Outcome, decide
from tunnelmark.analysis.strata import set_apart, without_stratum
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE


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
    outcome: Outcome
    """Differs, has no relevant difference, or is undecided: of all changes together."""
    p: float
    """Corrected for the moments of the runs and for how many changes are looked at."""
    confidence: float
    """Of this interval: it has the level of the decision."""
    method: str

    @property
    def clear(self) -> bool:
        """Whether it may be reported as a change."""
        return self.outcome == "differs"


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side."""

    environment: tuple[tuple[str, str | None, str | None], ...]
    """Name and both values where they differ; None: only the other has it."""
    unlike: tuple[str, ...]
    """Why the figures are not comparable; empty if they are."""
    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    """Points that only one run measured."""
    only_second: tuple[str, ...]
    without_baseline: tuple[str, ...]
    """Points of both whose effect is not known, with the metrics that it is not known in and why:
    no repeat of one has no tunnel beside it, or what is beside them differs."""
    confidence: float

    @property
    def said(self) -> str:
        """Return a summary of the comparison in one line."""
        clear = sum(change.clear for change in self.changes)
        count = len(self.changes)
        if not count:
            return "nothing was compared"
        if clear:
            return f"{clear} of {count} figures differ clearly"
        unsure = sum(change.outcome == "open" for change in self.changes)
        rest = f"; {unsure} of {count} figures have intervals too wide to exclude one"
        return f"no relevant difference{rest if unsure else ''}"


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
    times as ratios. Two runs of which each has one stratum, and not the same, are compared all the
    same; ``unlike`` says so. ``to_baseline``: each figure first over (or minus) no tunnel of its
    own block and repeat, so that a faster machine falls out and what the tunnel does is compared;
    a point where that is not known is left out.
    """
    own, other = (_located(run) for run in (first, second))
    here, there = (_strata(run) for run in (first, second))
    apart = len(here) == len(there) == 1 and here != there
    asked: list[tuple[Cell, Cell, Contrast]] = []
    unknown: dict[tuple[str, str], list[str]] = {}
    moments = max(first.moments, second.moments)
    places: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for metric in metrics:
        cells = [_by_place(trials, metric, apart=apart) for trials in (own, other)]
        for found, names in zip(cells, places, strict=True):
            names |= {place: name_of(cell) for place, cell in found.items()}
        # What no baseline ever gives (the CPU of a tunnel's programs) lacks none.
        given = {
            c.kinds["workload"]
            for found in cells
            for c in found.values()
            if c.figures and c.kinds["tunnel"] == BASELINE
        }
        for place, cell in cells[0].items():
            beside = cells[1].get(place)
            if beside is None or not cell.figures or not beside.figures:
                continue
            one, its = (_of_run(c, i, to_baseline) for i, c in enumerate((cell, beside)))
            if (reason := _unknown(one, its) if to_baseline else None) is None:
                asked.append((one, its, _contrast(one, its, metric, to_baseline=to_baseline)))
            elif cell.kinds["tunnel"] != BASELINE and cell.kinds["workload"] in given:
                unknown.setdefault((name_of(cell), reason), []).append(METRICS[metric].title)
    decisions = decide([c for *_, c in asked], confidence=confidence, moments=moments)
    nothing = (
        "no point of both has the same baseline beside a repeat in each"
        if unknown
        else "they share no point and metric"
    )
    return Comparison(
        environment=_differing(first.environment, second.environment),
        unlike=(*_unlike(first, second), *([] if asked else [nothing])),
        changes=tuple(
            _change(cell, beside, decision)
            for (cell, beside, _), decision in zip(asked, decisions, strict=True)
        ),
        only_first=tuple(name for place, name in places[0].items() if place not in places[1]),
        only_second=tuple(name for place, name in places[1].items() if place not in places[0]),
        without_baseline=tuple(
            f"{name}: {' and '.join(titles)} ({reason})"
            for (name, reason), titles in unknown.items()
        ),
        confidence=confidence,
    )


def _unlike(first: Run, second: Run) -> Iterator[str]:
    for what in ("study", "scale"):
        one, other = getattr(first, what), getattr(second, what)
        if one != other:
            yield f"the {what} is {one} in A and {other} in B"
    strata = [_strata(run) for run in (first, second)]
    if strata[0] != strata[1] and all(strata):
        there, here = (", ".join(sorted(one)) for one in strata)
        yield f"they ran in different places: {there} in A, {here} in B"


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


def _strata(run: Run) -> set[Stratum]:
    return {block.stratum for block in run.blocks}


def _by_place(trials: pl.DataFrame, metric: str, *, apart: bool) -> dict[str, Cell]:
    """Return the cells by where they stand; ``apart``: whatever the stratum."""

    def place(cell: Cell) -> str:
        point = without_stratum(cell.point_id, cell.stratum) if apart else cell.point_id
        stratum = None if apart else cell.stratum
        return repr((point, cell.names["link"], cell.names["device"], stratum))

    return {place(cell): cell for cell in cells_of(trials, metric)}


def _of_run(cell: Cell, number: int, to_baseline: bool) -> Cell:
    """Return a cell whose repeats are those of its own run: the ids of blocks are the same in both.

    ``to_baseline``: only the repeats that have a baseline; else no baseline.
    """
    kept = cell.baseline if to_baseline else cell.figures

    def renamed(figures: Mapping[Slot, float]) -> dict[Slot, float]:
        return {(c, f"{number}/{b}", up, n): figures[c, b, up, n] for c, b, up, n in kept}

    return replace(
        cell,
        figures=renamed(cell.figures),
        baseline=renamed(cell.baseline) if to_baseline else {},
    )


def _unknown(first: Cell, second: Cell) -> str | None:
    """Return why the effects in two runs cannot be compared; None if they can."""
    lacking = [name for name, cell in (("A", first), ("B", second)) if not cell.figures]
    if lacking:
        return f"no repeat in {' or '.join(lacking)} has a baseline beside it"
    one, other = (
        c.baseline_id and without_stratum(c.baseline_id, c.stratum) for c in (first, second)
    )
    return None if one == other else "the baselines differ"


def _contrast(first: Cell, second: Cell, metric: str, *, to_baseline: bool) -> Contrast:
    found = (effects if to_baseline else contrast)(second, first, metric)
    ratio = found.quantity == "ratio"
    return Contrast(metric, found.spread, found.quantity, logarithmic=ratio, method=found.method)


def _change(first: Cell, second: Cell, decision: Decision) -> Change:
    return Change(
        tunnel=first.shown,
        link=first.names["link"],
        device=first.names["device"],
        workload=first.names["workload"],
        metric=decision.metric,
        first=_mean(first),
        second=_mean(second),
        repeats=(len(first.figures), len(second.figures)),
        quantity="ratio" if decision.contrast.quantity == "ratio" else "difference",
        value=decision.value,
        low=decision.low,
        high=decision.high,
        outcome=decision.outcome,
        p=decision.p,
        confidence=decision.confidence,
        method=decision.contrast.method,
    )


def _mean(cell: Cell) -> float:
    return sum(cell.values) / len(cell.values)


def headline_metrics(*frames: pl.DataFrame) -> tuple[str, ...]:
    """Return the metrics that come first, of those that all tables have figures of."""
    return tuple(
        name
        for name, metric in METRICS.items()
        if metric.headline
        and all(name in frame.columns and frame[name].count() for frame in frames)
    )
