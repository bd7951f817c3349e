"""A hypothesis to the tests that it consists of, over the cells of a run."""

import math
from collections.abc import Iterator, Mapping, Sequence

from tunnelmark.analysis.cells import Cell, chosen, name_of, title_of
from tunnelmark.analysis.contrasts import one_cell
from tunnelmark.analysis.differences import between_groups
from tunnelmark.analysis.shapes import Nothing, Side, shape
from tunnelmark.analysis.testing import Claim, OneSided, Part, Spread
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT, Hypothesis, Selection


def claim_of(
    hypothesis: Hypothesis,
    cells: Sequence[Cell],
    *,
    fragmentation: Mapping[tuple[str, str, str], int],
) -> Part | Nothing:
    """Return the tests of a hypothesis.

    ``cells`` are those of its metric, also such without a figure: a claim over points of which one
    has no valid trial cannot be confirmed by the others. ``fragmentation`` is the largest payload
    in one packet by (link, device, tunnel).
    """
    if hypothesis.left_out is not None:
        return Nothing(f"not part of this scale of the study: {hypothesis.left_out}")
    if hypothesis.metric == FRAGMENTATION_POINT:
        cells = _fragmentation_cells(fragmentation)
    every, cells = cells, chosen(cells, hypothesis.over)
    if (lacking := _lacking(hypothesis, cells, every)) is not None:
        return lacking
    if hypothesis.kind == "threshold":
        return _threshold(hypothesis, cells)
    if hypothesis.kind == "shape":
        return shape(hypothesis, cells, fragmentation)
    return between_groups(hypothesis, cells)


def _lacking(
    hypothesis: Hypothesis, cells: Sequence[Cell], every: Sequence[Cell]
) -> Nothing | None:
    """Say what a claim speaks of and no valid trial measured; ``cells`` are those it is about."""
    if hypothesis.metric == FRAGMENTATION_POINT and not cells:
        return Nothing("the captures show no fragmentation point at the points of the claim")
    if not any(cell.figures for cell in cells):
        return Nothing(
            f"no valid trial gave {title_of(hypothesis.metric)} at the points of the claim"
        )
    for selection in (hypothesis.over, *hypothesis.groups):
        sizes = Selection(params={**hypothesis.over.params, **selection.params})
        for cell in chosen(cells, selection):
            if not cell.figures:
                return Nothing(
                    f"no valid trial of {name_of(cell)} gave {title_of(hypothesis.metric)}"
                )
        for part, what in _named(selection):
            if not chosen(cells, part) and _is_meant(part, sizes, every):
                return Nothing(f"no valid trial {what} gave {title_of(hypothesis.metric)}")
    return None


def _is_meant(part: Selection, sizes: Selection, every: Sequence[Cell]) -> bool:
    """Say whether a claim speaks of what one of its names stands for.

    A kind of workload stands for all its sizes, of which the claim may speak of some.
    """
    if "workload" not in part.labels:
        return True
    known = chosen(every, part)
    return not known or bool(chosen(known, sizes))


def _named(selection: Selection) -> Iterator[tuple[Selection, str]]:
    """Yield each label and value that a selection names on its own."""
    for axis, labels in selection.labels.items():
        for label in labels:
            yield Selection(labels={axis: (label,)}), f"of {axis} {label}"
    for name, wanted in selection.params.items():
        for value in wanted if isinstance(wanted, tuple) else ():
            yield Selection(params={name: (value,)}), f"at {name} {value}"


def _threshold(hypothesis: Hypothesis, cells: Sequence[Cell]) -> Part:
    limit = 0.0 if hypothesis.limit is None else hypothesis.limit
    width = 0.0
    if hypothesis.margin is not None:
        margin = hypothesis.margin
        width = margin.value * abs(limit) if margin.relative else margin.value
    at_least: list[Part] = [_at(hypothesis, c, limit - width, 1) for c in cells]
    at_most: list[Part] = [_at(hypothesis, c, limit + width, -1) for c in cells]
    # The highest is at least X if any is; it is at most X if each is. The lowest the other way.
    low = Claim("any" if hypothesis.of == "highest" else "all", tuple(at_least))
    high = Claim("any" if hypothesis.of == "lowest" else "all", tuple(at_most))
    if hypothesis.bound == "at_least":
        return low
    if hypothesis.bound == "at_most":
        return high
    return Claim("all", (low, high))


def _at(hypothesis: Hypothesis, cell: Cell, limit: float, side: Side) -> OneSided:
    what = name_of(cell)
    if hypothesis.metric == FRAGMENTATION_POINT:
        # A length that was found on the wire packet by packet: it does not scatter.
        found = Spread(cell.values[0], 0.0, math.inf, len(cell.values))
        return OneSided(what, found, limit, side, "value", "proof by wire")
    return one_cell(cell, hypothesis.metric, limit=limit, side=side, what=what)


def _fragmentation_cells(
    fragmentation: Mapping[tuple[str, str, str], int],
) -> list[Cell]:
    return [
        Cell(
            point_id=f"{link}/{device}/{tunnel}",
            names={"tunnel": tunnel, "link": link, "device": device, "workload": ""},
            kinds={},
            params={},
            figures={("", "proof", 1, 0): float(largest)},
            baseline={},
            baseline_id=None,
            packets=None,
        )
        for (link, device, tunnel), largest in fragmentation.items()
    ]
