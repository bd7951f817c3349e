"""Key findings, in words: what was decided of all differences together, and what was not."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import shown_name, stratum_of
from tunnelmark.analysis.testing import FEWEST
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.compressed import compressed
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import change, difference, worth
from tunnelmark.report.told import Told, leading_metric

_MOST_NAMED: Final = 4
_HALF: Final = 0.5


def findings(
    parts: Sequence[Section], blocks: Sequence[BlockRecord], told: Sequence[Told]
) -> list[str]:
    """Return a sentence for each: what was given up or is broken, what fits, what differs."""
    found = [
        f"{shown_name(block.tunnel, block)} over {block.link} was given up: {block.error}."
        for block in blocks
        if block.error
    ]
    strata = {stratum_of(point.tunnel) for section in parts for point in _points(section)}
    found += [words for stratum, words in _ABOUT.items() if stratum in strata]
    for section in parts:
        found += _broken(section)
    for section in parts:
        for part in section.parts:
            own = [t for t in told if (t.section, t.part) == (section.key, part.family.kind)]
            found += answers(section, part, own)
    found += [
        f"{tunnel} over {section.title}: the largest payload in one packet on the link is "
        f"{largest} bytes."
        for section in parts
        for tunnel, largest in section.fragmentation.items()
    ]
    for section in parts:
        found += compressed(_points(section), section.title)
    return [*found, *_levels(parts)]


def answers(section: Section, part: Part, told: Sequence[Told]) -> Iterator[str]:
    """Say which tunnel is better in what, what each costs, and what cannot be told."""
    where = f"{section.title}, {part.title}"
    yield from leaders(where, part.family, told)
    for one in told:
        if one.rival is None and one.decision.outcome == "differs":
            yield f"{where}: {_differs(part.family, one)}."
    for metric in dict.fromkeys(one.decision.metric for one in told):
        alike = [
            one.tunnel
            for one in told
            if (one.rival, one.decision.metric, one.decision.outcome) == (None, metric, "alike")
        ]
        if alike:
            yield (
                f"{where}: {METRICS[metric].title} of {_names(alike)} shows no difference worth "
                f"telling to no tunnel (less than {worth(metric)})."
            )
    yield from _open(where, told)


def leaders(where: str, family: Family, told: Sequence[Told]) -> Iterator[str]:
    """Say which tunnel is better than which, by their differences to their own baselines."""
    metric = leading_metric(family)
    pairs = [one for one in told if one.rival is not None and one.decision.outcome == "differs"]
    names = dict.fromkeys(p.tunnel for p in family.points if not p.is_baseline)
    if metric is None or not pairs:
        return
    title = METRICS[metric].title
    for name in names:
        beaten = [_seen_by(name, one) for one in pairs if name in {one.tunnel, one.rival}]
        won = [(rival, text) for rival, text, better in beaten if better]
        if won:
            best = " the best of all" if 1 < len(won) == len(names) - 1 else " better"
            against = "; ".join(f"{text} against {rival}" for rival, text in won[:_MOST_NAMED])
            rest = "" if len(won) <= _MOST_NAMED else f"; and {len(won) - _MOST_NAMED} more"
            yield f"{where}: {name} has{best} {title}: {against}{rest}{_over(family, pairs[0])}."


def _over(family: Family, one: Told) -> str:
    """Return over how many points a difference is the mean, where there are several."""
    every = len({p.workload for p in family.points})
    if every == 1:
        return ""
    count = len(one.points)
    return (
        f" (mean of {count} points)" if count == every else f" (mean of {count} of {every} points)"
    )


def _seen_by(name: str, one: Told) -> tuple[str, str, bool]:
    """Return the rival, the difference, and whether ``name`` has the better figure."""
    d = one.decision
    if one.tunnel == name:
        return one.rival or "", difference(d.metric, d.value, d.low, d.high), one.better
    value, low, high = (_turned(end, d.metric) for end in (d.value, d.high, d.low))
    return one.tunnel, difference(d.metric, value or 0.0, low, high), not one.better


def _turned(value: float | None, metric: str) -> float | None:
    """Return a difference as the other of the two sees it."""
    if value is None:
        return None
    return 1 / (1 + value) - 1 if METRICS[metric].scale == "log" else -value


def _differs(family: Family, one: Told) -> str:
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


def _open(where: str, told: Sequence[Told]) -> Iterator[str]:
    """Say what cannot be told, and what would settle it."""
    few = [one for one in told if not one.decision.contrast.spread.decides]
    if few:
        yield f"{where}: no difference is told with fewer than {FEWEST} repeats of a point."
    for metric in dict.fromkeys(one.decision.metric for one in told):
        # What never scattered and never differed (mostly: nothing was lost) leaves no question.
        own = [
            one
            for one in told
            if one.decision.metric == metric
            and one.decision.outcome == "open"
            and one not in few
            and (one.decision.contrast.spread.error or one.decision.value)
        ]
        if not own:
            continue
        names = [f"{one.tunnel} against {one.rival or 'no tunnel'}" for one in own]
        needed = [one.decision.to_settle for one in own]
        most = max((n for n in needed if n is not None), default=None)
        settle = (
            "no number of repeats up to 10,000 is likely to settle it"
            if None in needed or most is None
            else f"about {most} repeats of each point, in as many more bring-ups, would settle it"
        )
        yield f"{where}: {METRICS[metric].title}: no clear difference, {_names(names)}; {settle}."


def _names(names: Sequence[str]) -> str:
    shown = list(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        shown.append(f"{len(names) - _MOST_NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _broken(section: Section) -> Iterator[str]:
    """Say where nothing came through; such a point has no delay, and is no gap."""
    for part in section.parts:
        for tunnel in dict.fromkeys(p.tunnel for p in part.family.points):
            own = [p for p in part.family.points if p.tunnel == tunnel]
            never = [p for p in own if p.broken]
            if never:
                yield (
                    f"{tunnel} over {section.title}, {part.title}: broken at {len(never)} of "
                    f"{len(own)} points, {_names([_cell(part.family, p) for p in never])}: nothing "
                    "came through in any valid trial."
                )
            for point in own:
                if point.dead and not point.broken:
                    yield (
                        f"{tunnel} over {section.title}, {_cell(part.family, point)}: nothing came "
                        f"through in {point.dead} of {point.valid} valid trials; delays are of "
                        "the others."
                    )


def _cell(family: Family, point: PointEstimates) -> str:
    return ", ".join(cell for cell in family.cells(point) if cell) or point.workload


def _levels(parts: Sequence[Section]) -> Iterator[str]:
    """Say what the intervals are of: one bring-up, or several and which level dominates."""
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
            "Each tunnel was brought up once: the intervals are of repeats in that one bring-up; "
            "what differs between bring-ups (ports, keys, cores) is in none of them."
        )
        return
    shares = [one.between for one in found if one.between is not None]
    if shares:
        share = median(shares)
        more = "more bring-ups" if share > _HALF else "more repeats or bring-ups"
        yield (
            f"Of the variance of a difference {share:.0%} lies between bring-ups (median over "
            f"{len(shares)} points): {more} would narrow the intervals."
        )


def _points(section: Section) -> Iterable[PointEstimates]:
    for part in section.parts:
        yield from part.family.points


_ABOUT: Final = {
    Stratum.EMULATED: '"emulated" means that client, server and link ran in a machine whose CPU is '
    "software: their delays and CPU figures compare only with those of the same kind; packet "
    "sizes, overhead and fragmentation points with all.",
    Stratum.VIRTUALIZED: '"virtualized" means that client, server and link ran in a machine with '
    "hardware virtualization and a kernel of its own: their delays and CPU figures compare only "
    "with those of the same kind; packet sizes, overhead and fragmentation points with all.",
}
