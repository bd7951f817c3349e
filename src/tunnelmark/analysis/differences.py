"""Claims that compare two groups of points to the tests that they consist of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelmark.analysis.cells import Cell, chosen, matched, name_of, title_of
from tunnelmark.analysis.contrasts import contrast, on_logarithms, scaled_difference
from tunnelmark.analysis.shapes import Nothing, Side, together
from tunnelmark.analysis.testing import OneSided, Part, mean_of
from tunnelmark.model.hypothesis import Hypothesis, Range


def between_groups(hypothesis: Hypothesis, cells: Sequence[Cell]) -> Part | Nothing:
    """Return the tests of each group with the next, wherever both were measured."""
    steps: list[Part] = []
    for position in range(len(hypothesis.groups) - 1):
        found = _compared(hypothesis, cells, position)
        if isinstance(found, Nothing):
            return found
        steps += found
    return together(steps)


@dataclass(frozen=True)
class _Bound:
    """What the first group must exceed (``side`` 1) or stay below: the second, shifted by this."""

    shift: float
    side: Side
    relative: bool
    inclusive: bool


def _bounds(hypothesis: Hypothesis) -> tuple[_Bound, ...]:
    margin, by = hypothesis.margin, hypothesis.by
    width = 0.0 if margin is None else margin.value
    # Without a margin rates and times are compared as ratios: their limit is the ratio 1.
    relative = margin is None or margin.relative
    if hypothesis.kind == "equivalence":
        # Two one-sided tests, Schuirmann 1987.
        centre = 0.0 if by is None else by.value
        return (
            _Bound(centre - width, 1, relative, inclusive=True),
            _Bound(centre + width, -1, relative, inclusive=True),
        )
    side: Side = 1 if hypothesis.kind == "order" or hypothesis.better == "higher" else -1
    if hypothesis.kind == "non_inferiority":
        return (_Bound(-side * width, side, relative, inclusive=True),)
    return (_Bound(side * width, side, relative, inclusive=False),)


def _compared(hypothesis: Hypothesis, cells: Sequence[Cell], position: int) -> list[Part] | Nothing:
    groups = hypothesis.groups[position : position + 2]
    names = [_group_name(hypothesis, position + i) for i in range(2)]
    own = [chosen(cells, group) for group in groups]
    for name, members in zip(names, own, strict=True):
        if not members:
            return Nothing(f"no valid trial of {name} gave {title_of(hypothesis.metric)}")
    pairs = matched(own[0], own[1], groups[0].keys | groups[1].keys)
    if not pairs:
        return Nothing(f"{names[0]} and {names[1]} have no point in common")
    found: list[Part] = []
    for bound in _bounds(hypothesis):
        tests = [_test(hypothesis, one, other, names, bound) for one, other in pairs]
        if hypothesis.hold == "on_average" and len(tests) > 1:
            if len({test.quantity for test in tests}) > 1:
                return Nothing(
                    "some points compare as ratios and some as differences: there is no common mean"
                )
            tests = [_mean(tests, names, bound)]
        found += tests
    return found


def _test(
    hypothesis: Hypothesis, one: Cell, other: Cell, names: Sequence[str], bound: _Bound
) -> OneSided:
    metric = hypothesis.metric
    place = name_of(one, without={key for group in hypothesis.groups for key in group.labels})
    what = f"{names[0]} against {names[1]}" + (f", {place}" if place else "")
    logarithmic = bound.relative and on_logarithms(metric, [*one.values, *other.values])
    if _is_share(bound, logarithmic):
        # On a linear scale "5 % of the other"is not a number but a share of a mean that is itself
        # an estimate: the test is of first - share * second (Fieller 1954), its limit is 0.
        share = 1 + bound.shift
        own, method = scaled_difference(one, other, share, metric)
        return OneSided(
            f"{what} times {share:g}",
            own,
            0.0,
            bound.side,
            "difference",
            method,
            inclusive=bound.inclusive,
        )
    found = contrast(one, other, metric, absolute=not bound.relative)
    return OneSided(
        what,
        found.spread,
        math.log1p(bound.shift) if logarithmic else bound.shift,
        bound.side,
        found.quantity,
        found.method,
        inclusive=bound.inclusive,
        logarithmic=logarithmic,
    )


def _is_share(bound: _Bound, logarithmic: bool) -> bool:
    """Say whether the other is scaled before the difference, whose limit is then 0."""
    return bound.relative and bound.shift != 0 and not logarithmic


def _mean(tests: Sequence[OneSided], names: Sequence[str], bound: _Bound) -> OneSided:
    head = tests[0]
    scaled = f" times {1 + bound.shift:g}" if _is_share(bound, head.logarithmic) else ""
    return OneSided(
        f"{names[0]} against {names[1]}{scaled}, mean of {len(tests)} points",
        mean_of([test.spread for test in tests]),
        head.limit,
        head.side,
        head.quantity,
        "mean of points, Welch",
        inclusive=head.inclusive,
        logarithmic=head.logarithmic,
    )


def _group_name(hypothesis: Hypothesis, position: int) -> str:
    group = hypothesis.groups[position]
    labels = [" or ".join(values) for values in group.labels.values()]
    params = [f"{key} {_shown(want)}" for key, want in group.params.items()]
    return " ".join([*labels, *params])


def _shown(want: tuple[object, ...] | Range) -> str:
    if isinstance(want, tuple):
        return " or ".join(map(str, want))
    low, high = want.low, want.high
    return f"{'' if low is None else f'{low:g}'}-{'' if high is None else f'{high:g}'}"
