"""The first page: which tunnel, which MTU, what it costs, what breaks first.

Everything here follows from estimates and their intervals; what they do not support is not said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.cpu_cost import cpu_cost
from tunnelmark.analysis.estimates import Estimate, PointEstimates
from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.findings import leaders
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import NOTHING, difference, digits, figure, unit
from tunnelmark.report.told import OFFERED, Told, leading_metric

_SATURATED: Final = 0.95
"""Share of one core from which a thread waits for its CPU."""
_LOSS: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_COST: Final = "cpu_cost_s_per_gib"
_CPU: Final = ("cpu_tunnel_thread_max_ratio", "cpu_core_max_ratio")


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
    """What to choose at one place."""

    place: str
    leaders: tuple[str, ...]
    choices: tuple[Choice, ...]
    rate_title: str
    delay_title: str


def decide(
    sections: Sequence[Section], blocks: Sequence[BlockRecord], told: Sequence[Told]
) -> tuple[Decision, ...]:
    """Return one decision for each place that has a tunnel."""
    found = []
    for section in sections:
        points = [p for part in section.parts for p in part.family.points]
        names = list(dict.fromkeys(p.tunnel for p in points if not p.is_baseline))
        if not names:
            continue
        own = [b for b in blocks if (b.link, b.device) == (section.link, section.device)]
        rate, delay = _metric(points, "higher", "bit/s"), _metric(points, "lower", "ns")
        here = [one for one in told if one.section == section.key]
        found.append(
            Decision(
                section.title,
                tuple(said for part in section.parts for said in _leaders(part, here)),
                tuple(_choice(name, section, own, rate, delay, here) for name in names),
                "" if rate is None else METRICS[rate].title,
                "" if delay is None else METRICS[delay].title,
            )
        )
    return tuple(found)


def _choice(  # noqa: PLR0917 - one call
    name: str,
    section: Section,
    blocks: Sequence[BlockRecord],
    rate: str | None,
    delay: str | None,
    told: Sequence[Told],
) -> Choice:
    own = [p for part in section.parts for p in part.family.points if p.tunnel == name]
    here = [one for one in told if one.tunnel == name and one.rival is None]
    return Choice(
        name,
        _mtu(name, section, blocks),
        _span(own, "overhead_bytes"),
        NOTHING if rate is None else _changes(here, rate),
        NOTHING if delay is None else _changes(here, delay),
        _cpu(own),
        _breaks(name, section, here),
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
    # A stream at a fixed gap gets through or not; how much a tunnel carries others tell.
    telling = [name for name in found if name != OFFERED]
    return next(iter(telling or found), None)


def _mtu(name: str, section: Section, blocks: Sequence[BlockRecord]) -> str:
    """Return the largest packet that fits, and whether the tunnel's own MTU is above it."""
    largest = section.fragmentation.get(name)
    if largest is None:
        return NOTHING
    for block in blocks:
        base = block.baseline_proofs[0].fragmentation_point_bytes if block.baseline_proofs else None
        if shown_name(block.tunnel, block) != name or base is None or not block.baseline_negotiated:
            continue
        # Without a tunnel what the MTU has above the payload are the headers.
        headers = block.baseline_negotiated[0].mtu_bytes - base
        fits = largest + headers
        set_to = block.negotiated[0].mtu_bytes if block.negotiated else fits
        if headers > 0 and fits < set_to:
            return f"{fits} (is {set_to}: packets above {fits} byte are fragmented)"
        return f"{fits}"
    return f"payload {largest}"


def _leaders(part: Part, told: Sequence[Told]) -> list[str]:
    """Say which tunnel has the best figure; nobody where no difference between two is clear."""
    own = [one for one in told if one.part == part.family.kind]
    found = list(leaders(part.title, part.family, own))
    metric = leading_metric(part.family)
    if not found and metric is not None and any(one.rival is not None for one in own):
        return [f"{part.title}, {METRICS[metric].title}: no tunnel is clearly better than another."]
    return found


def _span(points: Sequence[PointEstimates], metric: str) -> str:
    """Return an estimate, or from the smallest to the largest of several points."""
    return _estimates([p.estimates[metric] for p in points if metric in p.estimates], metric)


def _estimates(estimates: Sequence[Estimate], metric: str) -> str:
    found = sorted(estimates, key=lambda estimate: estimate.value)
    if not found:
        return NOTHING
    if len(found) == 1:
        return f"{figure(found[0])} {unit(metric).name}"
    factor = unit(metric).factor
    places = digits(found[-1].value * factor, found[-1].value * factor / 2)
    low, high = (f"{e.value * factor:.{places}f}" for e in (found[0], found[-1]))
    return f"{low} {unit(metric).name}" if low == high else f"{low} to {high} {unit(metric).name}"


def _cpu(points: Sequence[PointEstimates]) -> str:
    """Return the CPU cost: of its programs, else of everything above the paired baseline."""
    found = [cost for p in points if (cost := cpu_cost(p, _COST)) is not None]
    if not found or all(cost.of_programs for cost in found):
        return _estimates([cost.estimate for cost in found], _COST)
    if clear := [cost.estimate for cost in found if cost.clear]:
        at = "" if len(clear) == len(found) else f" at {len(clear)} of {len(found)} points"
        return f"{_estimates(clear, _COST)} above no tunnel (whole machine){at}"
    return "no clear difference to no tunnel (whole machine)"


def _changes(told: Sequence[Told], metric: str) -> str:
    """Return what a metric changes against no tunnel, as it was decided for the whole report."""
    found = [one.decision for one in told if one.decision.metric == metric]
    words = []
    for d in found:
        if d.outcome == "differs":
            words.append(difference(metric, d.value, d.low, d.high))
        else:
            words.append(
                "no difference worth telling" if d.outcome == "alike" else "no clear difference"
            )
    return "; ".join(dict.fromkeys(words)) or NOTHING


def _breaks(name: str, section: Section, told: Sequence[Told]) -> str:
    """Say what gives way first: nothing comes through, loss, a busy core, fragmentation."""
    found = []
    for part in section.parts:
        own = [p for p in part.family.points if p.tunnel == name]
        if broken := [p for p in own if p.broken]:
            found.append(f"broken: {_from(part.family, broken)}")
        for one in told:
            d = one.decision
            lost = one.part == part.family.kind and d.metric in _LOSS
            if lost and d.outcome == "differs" and d.value > 0:
                lossy = [p for p in one.points if p.differences[d.metric].value > 0]
                found.append(f"loses more than no tunnel: {_from(part.family, lossy)}")
                break
        busy = [p for p in own if any(_above(p.estimates.get(m), _SATURATED) for m in _CPU)]
        if busy:
            found.append(f"a thread or core at its limit: {_from(part.family, busy)}")
    if found:
        return "; ".join(found)
    largest = section.fragmentation.get(name)
    sizes = [
        p.payload_bytes
        for part in section.parts
        for p in part.family.points
        if p.payload_bytes is not None
    ]
    if largest is not None and sizes and max(sizes) > largest:
        return f"fragments payloads above {largest} byte, nothing else"
    return "nothing in what was offered"


def _above(estimate: Estimate | None, limit: float) -> bool:
    return estimate is not None and estimate.low is not None and estimate.low > limit


def _from(family: Family, points: Sequence[PointEstimates]) -> str:
    """Return the first of these points in words, and how many there are."""
    first = ", ".join(cell for cell in family.cells(points[0]) if cell) or points[0].workload
    return first if len(points) == 1 else f"{first} and {len(points) - 1} more"
