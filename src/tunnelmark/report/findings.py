"""Key findings, in words: what was decided of all differences together, and what was not."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import shown_name
from tunnelmark.analysis.testing import FEWEST
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.compressed import compressed
from tunnelmark.report.families import Family
from tunnelmark.report.fragments import fragmented
from tunnelmark.report.names import MOST_NAMED, names
from tunnelmark.report.notes import notes_of
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import change, difference, worth
from tunnelmark.report.statements import Statement, leading_metric

_HALF: Final = 0.5


def findings(
    parts: Sequence[Section], blocks: Sequence[BlockRecord], statements: Sequence[Statement]
) -> list[str]:
    """Return a sentence for each, what decides first.

    Which tunnel is better, what fails, what each costs, what fits in one packet, where there is no
    difference, what is undecided, and what the intervals cover.
    """
    asked = [
        (
            section,
            part,
            [t for t in statements if (t.section, t.part) == (section.key, part.family.kind)],
        )
        for section in parts
        for part in section.parts
    ]
    found: list[str] = []
    for section, part, own in asked:
        found += leaders(_where(section, part), part.family, own)
    for section in parts:
        found += _broken(section)
    found += [
        f"{shown_name(block.tunnel, block)} over {block.link} was given up: {block.error}."
        for block in blocks
        if block.error
    ]
    for section, part, own in asked:
        found += _differences(_where(section, part), part.family, own)
    for section in parts:
        found += _largest(section)
        found += compressed(_points(section), section.title)
        for part in section.parts:
            found += fragmented(part.family.points, _where(section, part))
    for section, part, own in asked:
        found += _alike(_where(section, part), own)
    found += _few([(_where(section, part), own) for section, part, own in asked])
    for section, part, own in asked:
        found += _open(_where(section, part), own)
    strata = {point.stratum for section in parts for point in _points(section)}
    found += [words for stratum, words in _ABOUT.items() if stratum in strata]
    found += notes_of(blocks)
    return [*found, *_levels(parts)]


def _where(section: Section, part: Part) -> str:
    return f"{section.title}, {part.title}"


def _differences(where: str, family: Family, statements: Sequence[Statement]) -> Iterator[str]:
    """Say what each tunnel changes; tunnels that change the same metric in one sentence."""
    against = [t for t in statements if t.rival is None and t.decision.outcome == "differs"]
    for metric in dict.fromkeys(one.decision.metric for one in against):
        own = [one for one in against if one.decision.metric == metric]
        if len(own) == 1:
            yield f"{where}: {_differs(family, own[0])}."
            continue
        # The largest first: a reader looks for what costs most.
        own.sort(key=lambda one: -abs(one.decision.value))
        said = [
            (f"{one.tunnel} by {difference(metric, d.value, d.low, d.high)}", _over(family, one))
            for one in own
            for d in (one.decision,)
        ]
        yield f"{where}: {METRICS[metric].title} differs from no tunnel: {_listed(said)}."


def _alike(where: str, statements: Sequence[Statement]) -> Iterator[str]:
    for metric in dict.fromkeys(one.decision.metric for one in statements):
        alike = [
            one.tunnel
            for one in statements
            if (one.rival, one.decision.metric, one.decision.outcome) == (None, metric, "alike")
        ]
        if alike:
            yield (
                f"{where}: {METRICS[metric].title} of {names(alike)} shows no relevant difference "
                f"from no tunnel (less than {worth(metric)})."
            )


def _largest(section: Section) -> Iterator[str]:
    """Say what fits in one packet, those with the same size together, the largest first."""
    sizes: dict[int, list[str]] = {}
    for tunnel, largest in section.fragmentation.items():
        sizes.setdefault(largest, []).append(tunnel)
    if sizes:
        said = "; ".join(
            f"{largest} bytes for {names(sizes[largest])}"
            for largest in sorted(sizes, reverse=True)
        )
        yield f"{section.title}: the largest payload in one packet on the link is {said}."


def leaders(where: str, family: Family, statements: Sequence[Statement]) -> Iterator[str]:
    """Say which tunnel is better than which, by their differences to their own baselines."""
    metric = leading_metric(family)
    pairs = [
        one for one in statements if one.rival is not None and one.decision.outcome == "differs"
    ]
    leagues = {p.tunnel: p.league for p in family.points if not p.is_baseline}
    if metric is None or not pairs:
        return
    title = METRICS[metric].title
    ranked = sorted(leagues, key=lambda name: -sum(one.winner == name for one in pairs))
    for name in ranked:
        won = [one for one in pairs if one.winner == name]
        if won:
            rivals = list(leagues.values()).count(leagues[name]) - 1
            best = " the best of all" if 1 < len(won) == rivals else " better"
            said = [
                (
                    f"{difference(metric, *one.seen_by(name))} against {one.loser}",
                    _over(family, one),
                )
                for one in won[:MOST_NAMED]
            ]
            rest = "" if len(won) <= MOST_NAMED else f"; and {len(won) - MOST_NAMED} more"
            yield f"{where}: {name} has{best} {title}: {_listed(said, rest)}."


def _listed(said: Sequence[tuple[str, str]], rest: str = "") -> str:
    """Join phrases and what each is the mean of: once, behind all, where that is the same."""
    overs = {over for _, over in said}
    if len(overs) == 1:
        return f"{'; '.join(words for words, _ in said)}{rest}{overs.pop()}"
    return f"{'; '.join(f'{words}{over}' for words, over in said)}{rest}"


def _over(family: Family, one: Statement) -> str:
    """Return over how many points a difference is the mean, where there are several."""
    every = len({p.workload for p in family.points})
    if every == 1:
        return ""
    count = len(one.points)
    return (
        f" (mean of {count} points)" if count == every else f" (mean of {count} of {every} points)"
    )


def _differs(family: Family, one: Statement) -> str:
    d = one.decision
    metric = METRICS[d.metric]
    words = difference(d.metric, d.value, d.low, d.high)
    text = f"{metric.title} of {one.tunnel} differs from no tunnel by {words}{_over(family, one)}"
    if len(one.points) < 2:  # noqa: PLR2004 - nothing to choose from
        return text
    most = max(one.points, key=lambda p: abs(p.differences[d.metric].value))
    cells = [
        f"{name} {cell}"
        for name, cell in zip(family.headings, family.cells(most), strict=True)
        if cell
    ]
    return f"{text}, most at {', '.join(cells)}: {change(most.differences[d.metric])}"


def _few(asked: Iterable[tuple[str, Sequence[Statement]]]) -> Iterator[str]:
    """Say where there were too few repeats for any verdict, all in one sentence."""
    places = [
        where
        for where, own in asked
        if any(
            spread.repeats < FEWEST and not spread.decides
            for spread in (one.decision.contrast.spread for one in own)
        )
    ]
    if places:
        yield (
            f"There is no verdict with fewer than {FEWEST} repeats of a point: {'; '.join(places)}."
        )


def _open(where: str, statements: Sequence[Statement]) -> Iterator[str]:
    """Say what is undecided, and what would settle it."""
    few = [one for one in statements if not one.decision.contrast.spread.decides]
    for metric in dict.fromkeys(one.decision.metric for one in statements):
        # What never scattered and never differed (mostly: nothing was lost) leaves no question.
        own = [
            one
            for one in statements
            if one.decision.metric == metric
            and one.decision.outcome == "open"
            and one not in few
            and (one.decision.contrast.spread.error or one.decision.value)
        ]
        if not own:
            continue
        pairs = [f"{one.tunnel} against {one.rival or 'no tunnel'}" for one in own]
        needed = [one.decision.to_settle for one in own]
        most = max((n for n in needed if n is not None), default=None)
        settle = (
            "no number of repeats up to 10,000 is likely to settle it"
            if None in needed or most is None
            else f"about {most} repeats of each point, in as many more bring-ups, would settle it"
        )
        yield f"{where}: {METRICS[metric].title}: no clear difference, {names(pairs)}; {settle}."


def _broken(section: Section) -> Iterator[str]:
    """Say where nothing came through; such a point has no delay, and is not a gap."""
    for part in section.parts:
        where = f"{section.title}, {part.title}"
        alike: dict[tuple[int, int, str], list[str]] = {}
        for tunnel in dict.fromkeys(p.tunnel for p in part.family.points):
            own = [p for p in part.family.points if p.tunnel == tunnel]
            never = [p for p in own if p.broken]
            if never:
                cells = names([_cell(part.family, p) for p in never])
                alike.setdefault((len(never), len(own), cells), []).append(tunnel)
        for (count, of, cells), tunnels in alike.items():
            yield (
                f"{where}: {names(tunnels)} broken at {count} of {of} points, {cells}: nothing "
                "came through in any valid trial."
            )
        for point in part.family.points:
            if point.dead and not point.broken:
                yield (
                    f"{where}: {point.tunnel}, {_cell(part.family, point)}: nothing came through "
                    f"in {point.dead} of {point.valid} valid trials; delays are of the others."
                )


def _cell(family: Family, point: PointEstimates) -> str:
    return ", ".join(cell for cell in family.cells(point) if cell) or point.workload


def _levels(parts: Sequence[Section]) -> Iterator[str]:
    """Say what the intervals cover: one bring-up, or several and which level dominates."""
    found = [
        difference_
        for section in parts
        for part in section.parts
        for point in part.family.points
        if (metric := leading_metric(part.family)) is not None
        and (difference_ := point.differences.get(metric)) is not None
    ]
    if not found:
        return
    if all(one.bring_ups == 1 for one in found):
        yield (
            "Each tunnel was brought up once: the intervals cover repeats within that bring-up, "
            "not the variation between bring-ups (ports, keys, cores)."
        )
        return
    shares = [one.between for one in found if one.between is not None]
    if shares:
        share = median(shares)
        more = "more bring-ups" if share > _HALF else "more repeats or bring-ups"
        yield (
            f"{100 * share:.0f} % of the variance of a difference lies between bring-ups "
            f"(median over {len(shares)} points): {more} would narrow the intervals."
        )


def _points(section: Section) -> Iterable[PointEstimates]:
    for part in section.parts:
        yield from part.family.points


_ABOUT: Final = {
    Stratum.EMULATED: '"emulated" means that client, server and link ran in a machine whose CPU is '
    "software: compare their delays and CPU figures only with others of the same kind; packet "
    "sizes, overhead and fragmentation points compare with all.",
    Stratum.VIRTUALIZED: '"virtualized" means that client, server and link ran in a machine with '
    "hardware virtualization and its own kernel: compare their delays and CPU figures only "
    "with others of the same kind; packet sizes, overhead and fragmentation points with all.",
    Stratum.SIMULATION: '"simulated" means that nothing was measured: sender, receiver and link '
    "ran in virtual time, the tunnel is a model. Its repeats differ by drawn numbers alone, so an "
    "interval says nothing of how far the model is from a real tunnel.",
}
