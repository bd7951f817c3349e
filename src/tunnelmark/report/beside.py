"""Measured and published values side by side: tables, figures and claims of a classic study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.units import unit
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.hypothesis import Outcome, Verdict
from tunnelmark.published import Claim, claims, table
from tunnelmark.report.beside_headers import headers_beside
from tunnelmark.report.beside_table import Beside, Row
from tunnelmark.report.charts import Chart, Dot, Line, Surface, chart, surface
from tunnelmark.report.classics import Classic, Difference, Figure, Table, load_classic
from tunnelmark.report.families import slug
from tunnelmark.report.parameters import number as axis_number
from tunnelmark.report.sections import tunnels
from tunnelmark.report.show import NOTHING, digits

Key = tuple[tuple[str, str], ...]
"""What a published number is about: name of a label or parameter to its text."""


@dataclass(frozen=True)
class Judged:
    """One claim."""

    claim: Claim
    outcome: Outcome | None
    """None: this run does not judge it."""
    reason: str


@dataclass(frozen=True)
class Comparison:
    """A classic study as it was measured here."""

    source: str
    differs: tuple[Difference, ...]
    tables: tuple[Beside, ...]
    charts: tuple[Chart | Surface, ...]
    missing: tuple[str, ...]
    """Figures for which this run has no points."""
    claims: tuple[Judged, ...]


def compare(
    study: str,
    points: Sequence[PointEstimates],
    verdicts: Sequence[Verdict],
    blocks: Sequence[BlockRecord] = (),
) -> Comparison | None:
    """Return the comparison; None if the study is not a classic one.

    A verdict judges the claim whose id its hypothesis bears, alone or before a hyphen.
    """
    classic = load_classic(study)
    if classic is None:
        return None
    drawn: list[Chart | Surface] = []
    missing: list[str] = []
    for position, figure in enumerate(classic.figures, 1):
        found = _figure(figure, points, f"classic-{position}-{slug(figure.number)}")
        if found is None:
            missing.append(f"{figure.number}: {figure.title}")
        else:
            drawn.append(found)
    tables = []
    for position, one in enumerate(classic.tables, 1):
        numbers = _published(one)
        tables.append(_table(one, numbers, points))
        key = f"published-{position}-{slug(one.number)}"
        if (printed := _drawn(one, numbers, points, key)) is not None:
            drawn.append(printed)
    tables += [headers_beside(one, blocks) for one in classic.headers]
    return Comparison(
        classic.source,
        classic.differs,
        tuple(tables),
        tuple(drawn),
        tuple(missing),
        _claims(study, classic, verdicts, simulated=_all_simulated(points)),
    )


def _published(one: Table) -> dict[Key, float]:
    """Return the printed numbers by what they are about, the mean where there are several."""
    found: dict[Key, list[float]] = {}
    for row in table(one.csv):
        if any(row[column] not in texts for column, texts in one.only.items()):
            continue
        key = tuple(
            (column.label or column.param or name, column.ours(row[name]))
            for name, column in one.choose.items()
        )
        found.setdefault(key, []).extend(float(row[name]) for name in one.values if row[name])
    return {key: sum(values) / len(values) for key, values in found.items() if values}


def _table(one: Table, numbers: Mapping[Key, float], points: Sequence[PointEstimates]) -> Beside:
    rows, count = [], 0
    for key, printed in numbers.items():
        measured = _measured(one, key, points)
        count += measured is not None
        rows.append(
            Row(
                tuple(text for _, text in key),
                f"{printed:.{digits(printed, None)}f}",
                NOTHING if measured is None else _shown(measured, one.factor),
                NOTHING if measured is None else _change(measured, printed * one.factor),
            )
        )
    heads = tuple(column.label or column.param or name for name, column in one.choose.items())
    return Beside(one.number, one.title, one.unit, heads, tuple(rows), count)


def _measured(one: Table, key: Key, points: Sequence[PointEstimates]) -> Estimate | None:
    """Return the estimate of the point, or the mean of those, that a number is about."""
    named = {name for name, column in one.choose.items() if column.named}
    chosen = {name: text for name, text in key if name not in named}
    wanted: dict[str, object] = {**one.labels, **one.params, **chosen}
    if one.mean is None:
        return _only(one, wanted, points)
    each = [_only(one, {**wanted, one.mean.param: value}, points) for value in one.mean.of]
    found = [estimate for estimate in each if estimate is not None]
    return _mean(found) if len(found) == len(each) else None


def _mean(found: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates, none of which counts more.

    Its interval is the mean of theirs: as wide as if they erred together, for points share their
    bring-ups.
    """

    def over(ends: Sequence[float | None]) -> float | None:
        known = [end for end in ends if end is not None]
        return sum(known) / len(known) if len(known) == len(ends) else None

    value = sum(one.value for one in found) / len(found)
    low, high = over([one.low for one in found]), over([one.high for one in found])
    return replace(
        found[0],
        n=min(one.n for one in found),
        value=value,
        low=low,
        high=high,
        between=None,
        spread=None,
        units={},
    )


def _only(
    one: Table, wanted: Mapping[str, object], points: Sequence[PointEstimates]
) -> Estimate | None:
    found = [
        point.estimates[one.metric]
        for point in points
        if point.workload_kind == one.workload
        and one.metric in point.estimates
        and all(_is(point, name, value) for name, value in wanted.items())
    ]
    # Two would be a native and an emulated one, of which neither is the one that is meant.
    return found[0] if len(found) == 1 else None


def _drawn(
    one: Table, numbers: Mapping[Key, float], points: Sequence[PointEstimates], name: str
) -> Chart | None:
    if one.draw is None:
        return None
    own = [p for p in points if p.workload_kind == one.workload and _chosen(p, one)]
    shown = chart(
        own,
        one.metric,
        one.draw.axis,
        key=name,
        lines=one.draw.lines,
        order=_order(one.draw.lines, points),
        title=f"{one.number}: {one.title}",
    )
    if shown is None:
        return None
    factor = one.factor * unit(one.metric).factor
    labels = {point.tunnel: point.label for point in points}
    styles = {labels.get(line.name, line.name): line.style for line in shown.lines}
    printed: dict[str, list[Dot]] = {}
    for key, value in numbers.items():
        at: dict[str, str] = {**one.labels, **dict(key)}
        line, place = at.get(one.draw.lines), at.get(one.draw.axis)
        if line not in styles or place is None:
            continue
        x: float | str = place
        if shown.categories is None:
            x = axis_number(one.draw.axis, float(place)) or 0.0
        printed.setdefault(line, []).append(Dot(x, value * factor))
    lines = tuple(
        Line(f"{name}, published", styles[name], tuple(dots), published=True)
        for name, dots in printed.items()
    )
    # A published value may stand where nothing was measured.
    categories = shown.categories
    if categories is not None:
        places = [str(dot.x) for line in lines for dot in line.dots]
        categories = tuple(dict.fromkeys((*categories, *places)))
    return replace(shown, lines=(*shown.lines, *lines), categories=categories)


def _figure(figure: Figure, points: Sequence[PointEstimates], key: str) -> Chart | Surface | None:
    own = [p for p in points if p.workload_kind == figure.workload and _chosen(p, figure)]
    title = f"{figure.number}: {figure.title}"
    order = _order(figure.lines, points)
    if figure.against is not None:
        return surface(
            own, figure.metric, figure.axis, figure.against, key=key, title=title, order=order
        )
    return chart(
        own, figure.metric, figure.axis, key=key, lines=figure.lines, order=order, title=title
    )


def _order(lines: str, points: Sequence[PointEstimates]) -> list[str]:
    if lines == "tunnel":
        return tunnels(points)
    return list(dict.fromkeys(str(getattr(point, lines)) for point in points))


def _chosen(point: PointEstimates, one: Table | Figure) -> bool:
    wanted: dict[str, object] = {**one.labels, **one.params}
    return all(_is(point, name, value) for name, value in wanted.items())


def _is(point: PointEstimates, name: str, wanted: object) -> bool:
    """Say whether a label or parameter of a point is what a table means."""
    if name == "tunnel":
        # A tunnel on an emulated CPU is named so; it is compared with the publication anyway.
        return point.label == wanted
    if name in ("link", "device"):
        return bool(getattr(point, name) == wanted)
    value = point.params.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value) == float(str(wanted))
        except ValueError:
            return False
    return value is not None and str(value) == str(wanted)


def _shown(measured: Estimate, factor: float) -> str:
    value = measured.value / factor
    if measured.low is None or measured.high is None:
        return f"{value:.{digits(value, None)}f} (n={measured.n})"
    low, high = measured.low / factor, measured.high / factor
    places = digits(value, (high - low) / 2)
    return f"{value:.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def _change(measured: Estimate, printed: float) -> str:
    """Return measured against printed in percent, with the interval of the measured figure."""
    if not printed:
        return NOTHING

    def share(value: float) -> float:
        return 100 * (value / printed - 1)

    value = share(measured.value)
    if measured.low is None or measured.high is None:
        return f"{value:+z.{digits(value, abs(value) / 2)}f} %"
    low, high = share(measured.low), share(measured.high)
    places = digits(value, max((high - low) / 2, abs(value) / 20))
    words = f"{value:+z.{places}f} % [{low:+z.{places}f}, {high:+z.{places}f}]"
    # An interval that has the printed value in it does not show that it is the same.
    return f"{words}, no clear difference" if low <= 0 <= high else words


def _all_simulated(points: Sequence[PointEstimates]) -> bool:
    return bool(points) and all(point.stratum is Stratum.SIMULATION for point in points)


def _claims(
    study: str, classic: Classic, verdicts: Sequence[Verdict], *, simulated: bool
) -> tuple[Judged, ...]:
    found = []
    for claim in claims():
        if claim.study != study:
            continue
        own = [v for v in verdicts if _of_claim(v.hypothesis.name, claim.claim_id)]
        if own:
            outcome, reasons = _together(own), [v.reason for v in own]
            if simulated and outcome != "confirmed" and claim.claim_id in classic.simulated:
                reasons.append(f"why: {classic.simulated[claim.claim_id]}")
            found.append(Judged(claim, outcome, "; ".join(reasons)))
        else:
            reason = classic.unjudged.get(claim.claim_id, "no hypothesis of the study tests it")
            found.append(Judged(claim, None, reason))
    return tuple(found)


def of_a_claim(verdict: Verdict, study: str) -> bool:
    """Say whether a hypothesis judges a claim of the publication that a study repeats."""
    name = verdict.hypothesis.name
    return any(claim.study == study and _of_claim(name, claim.claim_id) for claim in claims())


def _of_claim(hypothesis: str, claim_id: str) -> bool:
    """Say whether a hypothesis is about a claim: ``mun-05``, or ``mun-05-recovers`` as a part."""
    return hypothesis == claim_id or hypothesis.startswith(f"{claim_id}-")


def _together(parts: Sequence[Verdict]) -> Outcome:
    """Return the verdict of a claim that says several things: it holds if each of them does."""
    outcomes = {part.outcome for part in parts}
    if "rejected" in outcomes:
        return "rejected"
    return "confirmed" if outcomes == {"confirmed"} else "undecided"
