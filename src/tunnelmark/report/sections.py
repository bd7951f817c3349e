"""The parts of a report that belong to one link and device, whatever shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunnelmark.analysis import fragmentation
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import BlockRecord
from tunnelmark.report.charts import Chart, chart
from tunnelmark.report.families import Deciding, Family, draw, families, slug
from tunnelmark.workloads.registry import workload_kind


@dataclass(frozen=True)
class Part:
    """One kind of workload there."""

    title: str
    family: Family
    charts: tuple[Chart, ...]
    notes: tuple[str, ...]
    """What is the same everywhere, in words instead of a figure."""


@dataclass(frozen=True)
class Section:
    """What belongs to one link and device."""

    key: str
    title: str
    link: str
    device: str
    parts: tuple[Part, ...]
    fragmentation: Mapping[str, int]
    """Largest payload carried in one packet, by tunnel, in bytes."""


def sections(
    points: Sequence[PointEstimates],
    blocks: Sequence[BlockRecord],
    deciding: Mapping[str, Deciding] | None = None,
) -> tuple[Section, ...]:
    """Return one section for each link and device, in order of their names.

    ``deciding`` has the metric by which the study decides, by kind of workload.
    """
    order = tunnels(points)
    places = sorted({(p.link, p.device) for p in points})
    found = []
    for number, (link, device) in enumerate(places):
        own = [p for p in points if (p.link, p.device) == (link, device)]
        largest = fragmentation_points(blocks, link, device)
        key = f"{number + 1}-{slug(place_name(link, device))}"
        parts = []
        for family in families(own, deciding):
            charts, notes = draw(family, key=key, order=order, fragmentation=largest)
            parts.append(Part(workload_title(family.kind), family, charts, notes))
        found.append(Section(key, place_name(link, device), link, device, tuple(parts), largest))
    return tuple(found)


def across(points: Sequence[PointEstimates]) -> tuple[Chart, ...]:
    """Return figures that set the devices of a study beside each other, tunnel by tunnel."""
    devices = list(dict.fromkeys(p.device for p in points))
    if len(devices) < 2:  # noqa: PLR2004 - nothing to set beside each other
        return ()
    found = []
    for link in sorted({p.link for p in points}):
        for tunnel in tunnels(points):
            own = [p for p in points if (p.link, p.tunnel) == (link, tunnel)]
            for family in families(own):
                if not family.metrics:
                    continue
                metric = family.metrics[0]
                drawn = chart(
                    own,
                    metric,
                    family.axis or "device",
                    key=f"devices-{slug(link)}-{slug(tunnel)}-{slug(family.kind)}",
                    lines="device",
                    order=devices,
                    title=f"{workload_title(family.kind)}, {tunnel} over {link}",
                )
                if drawn is not None and len(family.varied) < 2:  # noqa: PLR2004 - one curve each
                    found.append(drawn)
    return tuple(found)


def tunnels(points: Sequence[PointEstimates]) -> list[str]:
    """Return all tunnels, baselines first: the order of colours and markers."""
    ordered = sorted(points, key=lambda p: (not p.is_baseline, p.tunnel))
    return list(dict.fromkeys(point.tunnel for point in ordered))


def fragmentation_points(blocks: Sequence[BlockRecord], link: str, device: str) -> dict[str, int]:
    """Return the largest payload of one packet by the name that a tunnel has in the report."""
    found: dict[str, int] = {}
    for block in blocks:
        if (block.link, block.device) != (link, device):
            continue
        for (_, _, tunnel), point in fragmentation.fragmentation_points([block]).items():
            name = shown_name(tunnel, block)
            found[name] = min(point, found.get(name, point))
    return found


def place_name(link: str, device: str) -> str:
    """Return ``8 Mbit/s 41 ms``, with the device unless it is this machine."""
    return link if device == "host" else f"{link}, {device}"


def workload_title(kind: str) -> str:
    """Return a workload's title, or its kind if a result has one that is not known here."""
    driver = workload_kind(kind)
    return driver.title if driver is not None else kind
