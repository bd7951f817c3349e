"""What holds, in words: only what the estimates support, all that is told taken together."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunnelmark.analysis.discoveries import Told, told
from tunnelmark.analysis.emulated import is_marked, shown_name
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.compressed import compressed
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Section
from tunnelmark.report.show import change, figure, unit


def findings(parts: Sequence[Section], blocks: Sequence[BlockRecord]) -> list[str]:
    """Return a sentence for each: what was given up, fragmentation points, differences."""
    found = [
        f"{shown_name(block.tunnel, block)} over {block.link} was given up: {block.error}."
        for block in blocks
        if block.error
    ]
    if any(is_marked(point.tunnel) for section in parts for point in _points(section)):
        found.append(_ABOUT_EMULATED)
    found += [
        f"{tunnel} over {section.title}: the largest payload in one packet on the link is "
        f"{largest} byte."
        for section in parts
        for tunnel, largest in section.fragmentation.items()
    ]
    for section in parts:
        found += compressed(_points(section), section.title)
        for part in section.parts:
            family = part.family
            clear = told(family.points, _metrics(family))
            for tunnel in dict.fromkeys(p.tunnel for p in family.points if not p.is_baseline):
                own = [p for p in family.points if p.tunnel == tunnel]
                for metric in _metrics(family):
                    if sentence := _difference(family, own, metric, clear):
                        found.append(f"{tunnel} over {section.title}: {sentence}")
    return found


def _points(section: Section) -> Iterator[PointEstimates]:
    for part in section.parts:
        yield from part.family.points


_ABOUT_EMULATED: Final = (
    '"emulated" means that client, server and link ran in a machine whose CPU is software: their '
    "delays and CPU figures compare only with those of the same kind; packet sizes, overhead and "
    "fragmentation points with all."
)
_ALSO_TOLD: Final = ("loss_forward_ratio", "loss_reverse_ratio", "voip_mos_min")


def _metrics(family: Family) -> tuple[str, ...]:
    return (*family.compared, *(m for m in family.metrics if m in _ALSO_TOLD))


def _difference(
    family: Family, own: Sequence[PointEstimates], metric: str, clear: Sequence[Told]
) -> str | None:
    """Say where a metric differs from the baseline; silent where that may be chance."""
    found = [(p, d) for p, m, d in clear if p in own and m == metric]
    if not found:
        return None
    point, largest = max(found, key=lambda entry: abs(entry[1].value))
    cells = [
        f"{name} {cell}"
        for name, cell in zip(family.headings, family.cells(point), strict=True)
        if cell
    ]
    place = f" at {', '.join(cells)}" if cells else ""
    return (
        f"{METRICS[metric].title} differs from no tunnel at {len(found)} of {len(own)} points, "
        f"most{place}: {figure(point.estimates.get(metric))} {unit(metric).name}, "
        f"{change(largest)}."
    )
