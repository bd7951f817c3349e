"""What a run will see, in words, before it is run."""

from collections.abc import Iterator
from pathlib import Path

from tunnelmark.analysis.power import scatter_of, typical
from tunnelmark.analysis.units import Unit, unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.show import shown_duration
from tunnelmark.run.foresight import Foresight, Seen, foresee, repeats_in
from tunnelmark.store import open_result
from tunnelmark.study.study import Study


def foreseen(study: Study, *, budget_s: float | None, like: Path | None) -> Iterator[str]:
    """Yield lines: the differences that the study can detect, and the assumptions behind them.

    With the least and the most repeats, or with those that a time is enough for. ``like`` is an
    earlier result whose scatter is taken instead of the typical one.
    """
    if not study.tunnels:
        return
    scatter, source = (
        typical() if like is None else (scatter_of(open_result(like).trials()), str(like))
    )
    precision = study.precision
    counts = [precision.min_repeats, precision.max_repeats]
    if budget_s is not None:
        enough = repeats_in(study, budget_s)
        if enough < precision.min_repeats:
            least = foresee(study, scatter, precision.min_repeats)
            yield (
                f"{shown_duration(budget_s)} is too short for the study's minimum number of "
                f"repeats, {_what(least)}: the last points are left out"
            )
        counts = [max(enough, precision.min_repeats)]
    found = [foresee(study, scatter, count) for count in dict.fromkeys(counts)]
    for one in found:
        if one.seen:
            yield f"{_what(one)}: this study will detect differences of {_seen(one)}"
    if any(one.seen for one in found):
        yield f"in four of five runs, if figures scatter as in {source}"
    if unknown := found[0].unknown:
        names = "; ".join(METRICS[name].title for name in unknown)
        yield f"the scatter of {names} is unknown; --like RESULT takes it from an earlier run"


def _what(one: Foresight) -> str:
    ups = "1 bring-up" if one.bring_ups == 1 else f"{one.bring_ups} bring-ups"
    return f"{one.repeats} repeats in {ups}, about {shown_duration(one.seconds)}"


def _seen(one: Foresight) -> str:
    reported = [seen for seen in one.seen if seen.difference is not None]
    if not reported:
        return "unknown size: too few repeats"
    return "; ".join(f"{_size(seen)} in {METRICS[seen.metric].title}" for seen in reported)


def _size(seen: Seen) -> str:
    """Return ``2.4 %``, ``0.1 points`` or ``a factor of 3``: two digits are all a forecast has."""
    difference = seen.difference or 0.0
    relative = METRICS[seen.metric].scale == "log"
    if relative and difference > 1:
        return f"a factor of {_two_digits(1 + difference)}"
    shown = Unit(100.0, "%") if relative else unit(seen.metric)
    name = "points" if shown.name == "%" and not relative else shown.name
    return f"{_two_digits(difference * shown.factor)} {name}".rstrip()


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"
