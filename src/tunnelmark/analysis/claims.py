"""A hypothesis to the tests that it consists of, over the cells of a run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunnelmark.analysis.cells import Cell, chosen, matched, name_of
from tunnelmark.analysis.contrasts import (
    contrast,
    margin_shift,
    on_logarithms,
    one_cell,
    scaled_difference,
)
from tunnelmark.analysis.shapes import Nothing, Side, shape, together
from tunnelmark.analysis.testing import (
    Claim,
    OneSided,
    Part,
    Quantity,
    Spread,
    mean_of,
)
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT, Hypothesis, Selection


@dataclass(frozen=True)
class Difference:
    """One contrast between two groups at one place, with the limits of a margin around it."""

    what: str
    spread: Spread
    quantity: Quantity
    method: str
    low: float
    """What the figure must lie above if the first may fall behind by the margin."""
    high: float
    beyond: float
    """What it must lie above if the first is to lead by the margin."""


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
    if hypothesis.metric == FRAGMENTATION_POINT:
        cells = _fragmentation_cells(fragmentation)
    cells = chosen(cells, hypothesis.over)
    if (lacking := _lacking(hypothesis, cells)) is not None:
        return lacking
    if hypothesis.kind == "threshold":
        return _threshold(hypothesis, cells)
    if hypothesis.kind == "shape":
        return shape(hypothesis, cells, fragmentation)
    return _between_groups(hypothesis, cells)


def _lacking(hypothesis: Hypothesis, cells: Sequence[Cell]) -> Nothing | None:
    """Say what a claim speaks of and no valid trial measured."""
    if not any(cell.figures for cell in cells):
        return Nothing(f"no valid trial gave {hypothesis.metric} where the claim is made")
    for selection in (hypothesis.over, *hypothesis.groups):
        for cell in chosen(cells, selection):
            if not cell.figures:
                return Nothing(f"no valid trial of {name_of(cell)} gave {hypothesis.metric}")
        for part, what in _named(selection):
            if not chosen(cells, part):
                return Nothing(f"no valid trial {what} gave {hypothesis.metric}")
    return None


def _named(selection: Selection) -> Iterator[tuple[Selection, str]]:
    """Yield each label and value that a selection names on its own."""
    for axis, labels in selection.labels.items():
        for label in labels:
            yield Selection(labels={axis: (label,)}), f"of {axis} {label}"
    for name, wanted in selection.params.items():
        for value in wanted if isinstance(wanted, tuple) else ():
            yield Selection(params={name: (value,)}), f"at {name} {value}"


def _compared(hypothesis: Hypothesis, at: Difference) -> Part:
    if hypothesis.kind == "equivalence":
        # Two one-sided tests, Schuirmann 1987.
        return Claim("all", (_test(at, at.low, 1), _test(at, at.high, -1)))
    side: Side = 1 if hypothesis.kind == "order" or hypothesis.better == "higher" else -1
    if hypothesis.kind == "non_inferiority":
        return _test(at, at.low if side == 1 else at.high, side)
    return _test(at, at.beyond, side, inclusive=False)


def _between_groups(hypothesis: Hypothesis, cells: Sequence[Cell]) -> Part | Nothing:
    steps: list[Part] = []
    for position in range(len(hypothesis.groups) - 1):
        found = _differences(hypothesis, cells, position, position + 1)
        if isinstance(found, Nothing):
            return found
        steps += [_compared(hypothesis, one) for one in found]
    return together(steps)


def _differences(
    hypothesis: Hypothesis, cells: Sequence[Cell], first: int, second: int
) -> list[Difference] | Nothing:
    groups = (hypothesis.groups[first], hypothesis.groups[second])
    names = [_group_name(hypothesis, position) for position in (first, second)]
    own = [chosen(cells, group) for group in groups]
    for name, members in zip(names, own, strict=True):
        if not members:
            return Nothing(f"no valid trial of {name} gave {hypothesis.metric}")
    pairs = matched(own[0], own[1], groups[0].keys | groups[1].keys)
    if not pairs:
        return Nothing(f"{names[0]} and {names[1]} have no point in common")
    found = [_difference(hypothesis, one, other, names) for one, other in pairs]
    if hypothesis.hold == "everywhere" or len(found) == 1:
        return found
    if len({(at.quantity, at.low, at.high) for at in found}) > 1:
        return Nothing("some points compare as ratios and some as differences: no average")
    mean = mean_of([at.spread for at in found])
    head = found[0]
    what = f"{names[0]} against {names[1]}, mean of {len(found)} points"
    return [
        Difference(
            what, mean, head.quantity, "mean of points, Welch", head.low, head.high, head.beyond
        )
    ]


def _difference(hypothesis: Hypothesis, one: Cell, other: Cell, names: Sequence[str]) -> Difference:
    margin = hypothesis.margin
    place = name_of(one, without=_named_axes(hypothesis))
    what = f"{names[0]} against {names[1]}" + (f", {place}" if place else "")
    lead = 1 if hypothesis.kind == "order" or hypothesis.better == "higher" else -1
    metric = hypothesis.metric
    if margin is None or not margin.relative:
        found = contrast(one, other, metric, absolute=margin is not None)
        width = 0.0 if margin is None else margin.value
        return Difference(
            what, found.spread, found.quantity, found.method, -width, width, lead * width
        )
    if on_logarithms(metric, [*one.values, *other.values]):
        found = contrast(one, other, metric)
        low, high = margin_shift(margin, sign=-1), margin_shift(margin, sign=1)
        beyond = high if lead == 1 else low
        return Difference(what, found.spread, found.quantity, found.method, low, high, beyond)
    # On a linear scale "5 % of the other" is no number but a share of a mean that is itself an
    # estimate: the test is of first - share * second (Fieller 1954), its limit is 0.
    share = 1 + margin.value if _outer(hypothesis, lead) == 1 else 1 - margin.value
    own, method = scaled_difference(one, other, share, metric)
    return Difference(f"{what}, times {share:g}", own, "difference", method, 0.0, 0.0, 0.0)


def _outer(hypothesis: Hypothesis, lead: int) -> int:
    """Return which side of the other's mean the limit is on."""
    if hypothesis.kind in ("superiority", "order"):
        return lead
    return -1 if hypothesis.better == "higher" else 1


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


def _test(at: Difference, limit: float, side: Side, *, inclusive: bool = True) -> OneSided:
    return OneSided(
        at.what,
        at.spread,
        limit,
        side,
        at.quantity,
        at.method,
        inclusive=inclusive,
        logarithmic=at.quantity == "ratio",
    )


def _group_name(hypothesis: Hypothesis, position: int) -> str:
    group = hypothesis.groups[position]
    labels = [" or ".join(values) for values in group.labels.values()]
    params = [f"{key} {_shown(want)}" for key, want in group.params.items()]
    return " ".join([*labels, *params])


def _shown(want: object) -> str:
    if isinstance(want, tuple):
        return " or ".join(map(str, want))
    low, high = getattr(want, "low", None), getattr(want, "high", None)
    return f"{'' if low is None else f'{low:g}'}-{'' if high is None else f'{high:g}'}"


def _named_axes(hypothesis: Hypothesis) -> frozenset[str]:
    return frozenset(key for group in hypothesis.groups for key in group.labels)


def _fragmentation_cells(
    fragmentation: Mapping[tuple[str, str, str], int],
) -> list[Cell]:
    return [
        Cell(
            point_id=f"{link}/{device}/{tunnel}",
            names={"tunnel": tunnel, "link": link, "device": device, "workload": ""},
            kinds={},
            params={},
            figures={("proof", 0): float(largest)},
            baseline={},
            baseline_id=None,
            packets=None,
        )
        for (link, device, tunnel), largest in fragmentation.items()
    ]
