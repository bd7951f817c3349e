"""Hypotheses to verdicts: confirmed, rejected or undecided, with the interval that decides."""

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import polars as pl

from tunnelmark.analysis.cells import Cell, cells_of, title_of
from tunnelmark.analysis.claims import claim_of
from tunnelmark.analysis.fragmentation import fragmentation_points
from tunnelmark.analysis.shapes import Nothing
from tunnelmark.analysis.strata import set_apart
from tunnelmark.analysis.testing import (
    Claim,
    OneSided,
    Part,
    counted,
    deciding,
    holm,
    leaves,
    settle,
)
from tunnelmark.analysis.units import as_text, change_as_text
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.hypothesis import Deciding, Hypothesis, Outcome, Verdict

_MOST_EXPONENT: Final = 700.0
"""e to more than this is not a float."""


@dataclass(frozen=True)
class Measured:
    """What a run left: all that verdicts follow from."""

    trials: pl.DataFrame
    """``store.Result.trials()``."""
    blocks: Sequence[BlockRecord]
    confidence: float
    """Of each family of hypotheses as a whole."""
    moments: int = 1
    """At how many moments the run could end a point: ``sequential.chances``."""


def judge(hypotheses: Sequence[Hypothesis], measured: Measured) -> tuple[Verdict, ...]:
    """Return what a run says of each hypothesis, in their order.

    A claim is confirmed where the interval at the study's confidence lies wholly on its side of
    the limit, rejected where it lies wholly on the other side, and undecided between. Within a
    family the levels are Holm's, so that all verdicts of a family hold together with that
    confidence; a run that could stop early has its moments shared out beforehand.
    """
    fragmentation = fragmentation_points(measured.blocks)
    trials = set_apart(measured.trials, measured.blocks)

    @cache
    def cells(metric: str) -> tuple[Cell, ...]:
        return cells_of(trials, metric)

    parts = [
        _with_moments(
            claim_of(one, cells(one.metric), fragmentation=fragmentation), measured.moments
        )
        for one in hypotheses
    ]
    families: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(hypotheses):
        families[one.family].append(index)
    found: dict[int, Verdict] = {}
    # Half of the error for verdicts for, half for verdicts against: only one of them can be wrong.
    tail = (1 - measured.confidence) / 2
    for members in families.values():
        for_it = holm([_p(parts[i], confirm=True) for i in members], tail)
        against = holm([_p(parts[i], confirm=False) for i in members], tail)
        for index, yes, no in zip(members, for_it, against, strict=True):
            found[index] = _verdict(hypotheses[index], parts[index], yes, no)
    return tuple(found[index] for index in range(len(hypotheses)))


def _p(part: Part | Nothing, *, confirm: bool) -> float:
    if isinstance(part, Nothing):
        return 1.0
    return part.p_confirm if confirm else part.p_reject


def _with_moments(part: Part | Nothing, moments: int) -> Part | Nothing:
    if isinstance(part, Nothing):
        return part
    if isinstance(part, OneSided):
        return replace(part, looks=moments)
    inner = (_with_moments(one, moments) for one in part.parts)
    return Claim(part.needs, tuple(one for one in inner if not isinstance(one, Nothing)))


def _verdict(
    hypothesis: Hypothesis,
    part: Part | Nothing,
    confirmed: tuple[bool, float],
    rejected: tuple[bool, float],
) -> Verdict:
    if isinstance(part, Nothing):
        return Verdict(hypothesis, "undecided", part.reason, None, 0, 1.0, 1.0, None)
    outcome: Outcome = "confirmed" if confirmed[0] else "rejected" if rejected[0] else "undecided"
    level = rejected[1] if outcome == "rejected" else confirmed[1]
    test, times = deciding(part, rejected=outcome == "rejected")
    tail = level / times
    if outcome == "undecided":
        # Neither verdict was reached, so what is shown must hold the limit at the level of both.
        tail = min(tail, rejected[1] / counted(part, test, rejected=True))
    shown = _deciding(hypothesis, test, tail)
    return Verdict(
        hypothesis=hypothesis,
        outcome=outcome,
        reason=_reason(hypothesis, outcome, test, shown),
        deciding=shown,
        tests=len(leaves(part)),
        p_confirm=part.p_confirm,
        p_reject=part.p_reject,
        repeats_to_settle=settle(part, level) if outcome == "undecided" else None,
    )


def _deciding(hypothesis: Hypothesis, test: OneSided, tail: float) -> Deciding:
    bounds = test.bounds(tail)
    value, limit = back(test.spread.value, test), back(test.limit, test)
    low, high = (None, None) if bounds is None else (back(b, test) for b in bounds)
    return Deciding(
        what=test.what,
        metric=hypothesis.metric,
        quantity=test.quantity,
        value=value,
        low=low,
        high=high,
        limit=limit,
        side="above" if test.side == 1 else "below",
        confidence=1 - 2 * tail,
        repeats=test.spread.repeats,
        method=test.method,
    )


def back(value: float, test: OneSided) -> float:
    """Return a figure from its logarithm: a ratio minus 1, or the value itself."""
    if not test.logarithmic:
        return value
    if value > _MOST_EXPONENT:
        # JSON has no infinity.
        return sys.float_info.max
    return math.exp(value) if test.quantity == "value" else math.expm1(value)


_WORDS: Final[Mapping[tuple[int, bool], str]] = {
    (1, True): "at least",
    (-1, True): "at most",
    (1, False): "above",
    (-1, False): "below",
}
_VERB: Final[Mapping[Outcome, str]] = {
    "confirmed": "is {} {}",
    "rejected": "is not {} {}",
    "undecided": "may be {} {} or not",
}


def _reason(hypothesis: Hypothesis, outcome: Outcome, test: OneSided, shown: Deciding) -> str:
    """Return the metric and points that decided, their figure and the limit it was tested on."""

    def text(value: float) -> str:
        if shown.quantity == "value":
            return as_text(value, shown.metric)
        return change_as_text(value, shown.metric, shown.quantity, hypothesis.along)

    where = f"{title_of(shown.metric)}, {shown.what}"
    value, limit = text(shown.value), text(shown.limit)
    if shown.low is None or shown.high is None:
        count = "1 repeat gives" if shown.repeats == 1 else f"{shown.repeats} repeats give"
        return f"{where}: {value}, but {count} no interval to compare with {limit}"
    # The unit stands once.
    ending = value.partition(" ")[2]
    low, high = (text(end).removesuffix(f" {ending}") for end in (shown.low, shown.high))
    within = "" if test.spread.error == 0 and shown.low == shown.high else f" [{low}, {high}]"
    said = _VERB[outcome].format(_WORDS[test.side, test.inclusive], limit)
    return f"{where}: {value}{within} {said}"
