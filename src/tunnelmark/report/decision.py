"""Each tunnel at one place: which MTU, what it costs, what breaks first.

Everything here follows from estimates and their intervals; what they do not support is not said.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.cpu_cost import CpuCost, cpu_cost
from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import shown_name
from tunnelmark.analysis.units import unit
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import NOTHING, difference, digits, figure
from tunnelmark.report.statements import OFFERED, Statement

_SATURATED: Final = 0.95
"""Share of one core from which a thread waits for its CPU."""
_LOSS: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_MUCH_LOST: Final = 0.01
"""Share of packets beyond that without a tunnel from which a loss is mentioned undecided."""
_SHARE: Final = "cpu_tunnel_ratio"
_CPU: Final = ("cpu_tunnel_thread_max_ratio", "cpu_core_max_ratio")
_DEVICES: Final = {
    "cpu_device_client_ratio": "of the client's device",
    "cpu_device_server_ratio": "of the server's device",
}
ALIKE: Final = "no relevant difference"
_LOADS: Final = (OFFERED, "throughput_lower_bit_s", "wire_forward_bit_s")
"""What says how much a point carried, the best first."""


@dataclass(frozen=True)
class Choice:
    """One tunnel at one place."""

    tunnel: str
    mtu: str
    overhead: str
    rate: str
    """Change of the rate against no tunnel."""
    delay: str
    """Change of the delay against no tunnel."""
    cpu: str
    breaks: str


@dataclass(frozen=True)
class Decision:
    """All tunnels at one place."""

    place: str
    choices: tuple[Choice, ...]
    rate_title: str
    delay_title: str


def decide(
    sections: Sequence[Section], blocks: Sequence[BlockRecord], statements: Sequence[Statement]
) -> tuple[Decision, ...]:
    """Return one decision for each place that has a tunnel."""
    found = []
    for section in sections:
        points = [p for part in section.parts for p in part.family.points]
        names = list(dict.fromkeys(p.tunnel for p in points if not p.is_baseline))
        if not names:
            continue
        rate, delay = _metric(points, "higher", "bit/s"), _metric(points, "lower", "ns")
        here = [one for one in statements if one.section == section.key]
        found.append(
            Decision(
                section.title,
                tuple(_choice(name, section, blocks, rate, delay, here) for name in names),
                "" if rate is None else METRICS[rate].title,
                "" if delay is None else METRICS[delay].title,
            )
        )
    return tuple(found)


def mtu(name: str, section: Section, blocks: Sequence[BlockRecord]) -> str:
    """Return the largest packet that fits, and whether the tunnel's own MTU is above it."""
    largest = section.fragmentation.get(name)
    if largest is None:
        return NOTHING
    for block in blocks_of(name, section, blocks):
        base = block.baseline_proofs[0].fragmentation_point_bytes if block.baseline_proofs else None
        if base is None or not block.baseline_negotiated:
            continue
        # Without a tunnel what the MTU has above the payload are the headers.
        headers = block.baseline_negotiated[0].mtu_bytes - base
        fits = largest + headers
        set_to = block.negotiated[0].mtu_bytes if block.negotiated else fits
        if headers > 0 and fits < set_to:
            return f"{fits} instead of {set_to}"
        return f"{fits}"
    return f"payload {largest}"


def blocks_of(name: str, section: Section, blocks: Sequence[BlockRecord]) -> list[BlockRecord]:
    """Return the blocks of a tunnel at a place, by the name that it has in the report."""
    return [
        block
        for block in blocks
        if (block.link, block.device) == (section.link, section.device)
        and shown_name(block.tunnel, block) == name
    ]


def overhead(points: Sequence[PointEstimates], largest: int | None) -> str:
    """Return how many bytes the headers of a packet have.

    What exceeds the ``largest`` payload of one packet has them twice; from the fewest to the most
    where a tunnel fills its packets up.
    """
    metric = "overhead_bytes"
    found = [p for p in points if metric in p.estimates]
    whole = [p for p in found if largest is None or (p.payload_bytes or 0) <= largest]
    split = [p for p in found if p not in whole]
    if not found:
        return NOTHING
    said = [f"{_span([p.estimates[metric].value for p in whole])} bytes"] if whole else []
    if split:
        counted = "" if whole else " bytes"
        said.append(
            f"{_span([p.estimates[metric].value for p in split])}{counted} where fragmented"
        )
    return ", ".join(said)


def _span(values: Sequence[float]) -> str:
    low, high = (f"{end:.{digits(end, end / 2)}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def cpu_share(points: Sequence[PointEstimates]) -> str:
    """Return the share of the CPU at the point that carried most, and what that was.

    That of a limited device where the study has one; else what the tunnel's programs used of one
    core, and what the whole machine used above no tunnel, the kernel's work included.
    """
    for point in sorted(points, key=_carried, reverse=True):
        load = next((point.estimates[m] for m in _LOADS if m in point.estimates), None)
        at = "" if load is None else f" at {plain(load)}"
        devices = [point.estimates[metric] for metric in _DEVICES if metric in point.estimates]
        if devices:
            most = max(devices, key=lambda one: one.value)
            return f"{figure(most)} % {_DEVICES[most.metric]}{at}"
        if said := _said(cpu_cost(point, _SHARE)):
            return f"{said}{at}"
    return NOTHING


def _said(cost: CpuCost) -> str:
    """Return both shares in words; nothing where neither was measured."""
    of, words = " of one core", []
    if cost.of_programs is not None:
        words.append(f"{figure(cost.of_programs)} %{of} (its programs)")
        of = ""
    if cost.clear:
        words.append(f"{figure(cost.of_machine)} %{of} above no tunnel (whole machine)")
    elif cost.of_machine is not None:
        words.append("no clear difference from no tunnel (whole machine)")
    return ", ".join(words)


def plain(estimate: Estimate) -> str:
    """Return a figure with its unit and without its interval."""
    shown = unit(estimate.metric)
    value = estimate.value * shown.factor
    return f"{value:.{digits(value, abs(value) / 2)}f} {shown.name}".rstrip()


def changes(statements: Sequence[Statement], metric: str) -> str:
    """Return what a metric changes against no tunnel, as it was decided for the whole report."""
    words = []
    for one in statements:
        d = one.decision
        if d.metric != metric:
            continue
        if d.outcome == "differs":
            words.append(difference(metric, d.value, d.low, d.high))
        else:
            words.append(ALIKE if d.outcome == "alike" else "no clear difference")
    return "; ".join(dict.fromkeys(words)) or NOTHING


def breaks(
    name: str, parts: Sequence[Part], section: Section, statements: Sequence[Statement]
) -> str:
    """Say what gives way first: nothing comes through, loss, a busy core, fragmentation.

    ``statements`` are the differences of this tunnel from no tunnel.
    """
    found = []
    for part in parts:
        own = [p for p in part.family.points if p.tunnel == name]
        if lacking := [p for p in own if not p.valid]:
            found.append(f"no valid trial: {_from(part.family, lacking)}")
        if broken := [p for p in own if p.broken]:
            found.append(f"broken: {_from(part.family, broken)}")
        for one in statements:
            d = one.decision
            lost = one.part == part.family.kind and d.metric in _LOSS
            if lost and d.outcome == "differs" and d.value > 0:
                lossy = [p for p in one.points if p.differences[d.metric].value > 0]
                found.append(f"loses more than no tunnel: {_from(part.family, lossy)}")
                break
        decided = {
            one.decision.metric
            for one in statements
            if one.part == part.family.kind and one.decision.outcome in {"differs", "alike"}
        }
        if lossy := [p for p in own if _loses(p, decided)]:
            words = "may lose more than no tunnel, with too few repeats to decide"
            found.append(f"{words}: {_from(part.family, lossy)}")
        busy = [p for p in own if any(_above(p.estimates.get(m), _SATURATED) for m in _CPU)]
        if busy:
            found.append(f"a thread or core at its limit: {_from(part.family, busy)}")
    if found:
        return "; ".join(found)
    largest = section.fragmentation.get(name)
    sizes = [p.payload_bytes for part in parts for p in part.family.points if p.payload_bytes]
    if largest is not None and sizes and max(sizes) > largest:
        return f"fragments payloads above {largest} bytes, nothing else"
    return "no failure at the offered loads"


def _loses(point: PointEstimates, decided: Collection[str]) -> bool:
    """Say whether much more is lost than without a tunnel, by a metric that is not decided."""
    return any(
        metric not in decided
        and (found := point.differences.get(metric)) is not None
        and found.value > _MUCH_LOST
        for metric in _LOSS
    )


def _choice(  # noqa: PLR0917 - one call
    name: str,
    section: Section,
    blocks: Sequence[BlockRecord],
    rate: str | None,
    delay: str | None,
    statements: Sequence[Statement],
) -> Choice:
    own = [p for part in section.parts for p in part.family.points if p.tunnel == name]
    here = [one for one in statements if one.tunnel == name and one.rival is None]
    return Choice(
        name,
        mtu(name, section, blocks),
        overhead(own, section.fragmentation.get(name)),
        NOTHING if rate is None else changes(here, rate),
        NOTHING if delay is None else changes(here, delay),
        cpu_share(own),
        breaks(name, section.parts, section, here),
    )


def _metric(points: Sequence[PointEstimates], better: str, stored: str) -> str | None:
    """Return the first headline that is compared as a ratio."""
    found = [
        name
        for name, metric in METRICS.items()
        if (metric.better, metric.unit, metric.scale) == (better, stored, "log")
        and metric.headline
        and any(name in point.differences for point in points)
    ]
    # A stream at a fixed gap passes or does not; other metrics show how much a tunnel carries.
    telling = [name for name in found if name != OFFERED]
    return next(iter(telling or found), None)


def _carried(point: PointEstimates) -> float:
    return next((point.estimates[m].value for m in _LOADS if m in point.estimates), 0.0)


def _above(estimate: Estimate | None, limit: float) -> bool:
    return estimate is not None and estimate.low is not None and estimate.low > limit


def _from(family: Family, points: Sequence[PointEstimates]) -> str:
    """Return the first of these points in words with its load, and how many there are."""
    first = ", ".join(cell for cell in family.cells(points[0]) if cell) or points[0].workload
    load = points[0].estimates.get(OFFERED)
    if load is not None and load.value > 0:
        first += f" at {plain(load)}"
    return first if len(points) == 1 else f"{first} and {len(points) - 1} more"
