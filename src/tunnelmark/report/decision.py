"""The first page: which tunnel, which MTU, what it costs, what breaks first.

Everything here follows from estimates and their intervals; what they do not support is not said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.discoveries import told
from tunnelmark.analysis.emulated import is_marked, shown_name
from tunnelmark.analysis.estimates import Estimate, PointEstimates
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Section
from tunnelmark.report.show import NOTHING, digits, figure, unit

_SATURATED: Final = 0.95
"""Share of one core from which a process waits for its CPU."""
_OFFERED: Final = "goodput_bit_s"
_LOSS: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_COST: Final = "cpu_cost_s_per_gib"
_CPU: Final = ("cpu_client_ratio", "cpu_server_ratio")


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


def decide(sections: Sequence[Section], blocks: Sequence[BlockRecord]) -> tuple[Decision, ...]:
    """Return one decision for each place that has a tunnel."""
    found = []
    for section in sections:
        points = [p for part in section.parts for p in part.family.points]
        names = list(dict.fromkeys(p.tunnel for p in points if not p.is_baseline))
        if not names:
            continue
        own = [b for b in blocks if (b.link, b.device) == (section.link, section.device)]
        rate, delay = _metric(points, "higher", "bit/s"), _metric(points, "lower", "ns")
        found.append(
            Decision(
                section.title,
                tuple(said for part in section.parts for said in _leaders(part.title, part.family)),
                tuple(_choice(name, section, own, rate, delay) for name in names),
                "" if rate is None else METRICS[rate].title,
                "" if delay is None else METRICS[delay].title,
            )
        )
    return tuple(found)


def _choice(
    name: str,
    section: Section,
    blocks: Sequence[BlockRecord],
    rate: str | None,
    delay: str | None,
) -> Choice:
    own = [p for part in section.parts for p in part.family.points if p.tunnel == name]
    return Choice(
        name,
        _mtu(name, section, blocks),
        _span(own, "overhead_bytes"),
        NOTHING if rate is None else _changes(own, rate),
        NOTHING if delay is None else _changes(own, delay),
        _cpu(own),
        _breaks(name, section),
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
    telling = [name for name in found if name != _OFFERED]
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


def _leaders(title: str, family: Family) -> list[str]:
    """Say which tunnel has the best figure where its interval is clear of all others."""
    if not family.metrics:
        return []
    telling = [name for name in family.compared if name != _OFFERED]
    metric = next(iter((*telling, *family.compared, *family.metrics)))
    if METRICS[metric].better == "neither":
        return []
    sign = 1 if METRICS[metric].better == "higher" else -1
    combinations: dict[tuple[str, ...], list[PointEstimates]] = {}
    for point in family.points:
        if not point.is_baseline and metric in point.estimates:
            # A tunnel on an emulated CPU is no rival of one on a native CPU.
            where = "emulated" if is_marked(point.tunnel) else "native"
            key = (*family.cells(point), point.workload, where)
            combinations.setdefault(key, []).append(point)
    contests = [points for points in combinations.values() if len(points) > 1]
    if not contests:
        return []
    won: dict[str, int] = {}
    for points in contests:
        ranked = sorted(points, key=lambda p: -sign * p.estimates[metric].value)
        best = ranked[0].estimates[metric]
        if all(_clear(best, other.estimates[metric], sign) for other in ranked[1:]):
            won[ranked[0].tunnel] = won.get(ranked[0].tunnel, 0) + 1
    name = METRICS[metric].title
    if not won:
        return [f"{title}, {name}: nobody leads at any of {_points(len(contests))}."]
    leaders = [
        f"{tunnel} leads at {count} of {_points(len(contests))}"
        for tunnel, count in sorted(won.items(), key=lambda entry: -entry[1])
    ]
    rest = len(contests) - sum(won.values())
    tail = f"; at {rest} the intervals overlap" if rest else ""
    return [f"{title}, {name}: {', '.join(leaders)}{tail}."]


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count} points"


def _clear(best: Estimate, other: Estimate, sign: int) -> bool:
    if None in (best.low, best.high, other.low, other.high):
        return False
    if sign == 1:
        return (best.low or 0.0) > (other.high or 0.0)
    return (best.high or 0.0) < (other.low or 0.0)


def _span(points: Sequence[PointEstimates], metric: str) -> str:
    """Return an estimate, or from the smallest to the largest of several points."""
    found = sorted(
        (p.estimates[metric] for p in points if metric in p.estimates), key=lambda e: e.value
    )
    if not found:
        return NOTHING
    if len(found) == 1:
        return f"{figure(found[0])} {unit(metric).name}"
    factor = unit(metric).factor
    places = digits(found[-1].value * factor, found[-1].value * factor / 2)
    low, high = (f"{e.value * factor:.{places}f}" for e in (found[0], found[-1]))
    return f"{low} {unit(metric).name}" if low == high else f"{low} to {high} {unit(metric).name}"


def _cpu(points: Sequence[PointEstimates]) -> str:
    """Return the CPU cost; of a tunnel without a process it is the kernel's and not its own."""
    found = [p.estimates[_COST] for p in points if _COST in p.estimates]
    if found and all(estimate.value == 0 for estimate in found):
        return "in the kernel, see CPU of the machine"
    return _span(points, _COST)


def _changes(points: Sequence[PointEstimates], metric: str) -> str:
    """Return the changes that are more than chance, from the smallest to the largest."""
    found = [d for p in points if (d := p.differences.get(metric)) is not None]
    if not found:
        return NOTHING
    clear = sorted(100 * difference.value for _, _, difference in told(points, (metric,)))
    if not clear:
        return "not told apart"
    low, high = (f"{value:+.{digits(value, abs(value) / 2)}f}" for value in (clear[0], clear[-1]))
    words = f"{low} %" if low == high else f"{low} to {high} %"
    return words if len(clear) == len(found) else f"{words} at {len(clear)} of {len(found)} points"


def _breaks(name: str, section: Section) -> str:
    """Say what gives way first: loss beyond the baseline's, a busy core, fragmentation."""
    found = []
    for part in section.parts:
        own = [p for p in part.family.points if p.tunnel == name]
        more = {p.point_id for p, _, difference in told(own, _LOSS) if difference.value > 0}
        lossy = [p for p in own if p.point_id in more]
        if lossy:
            found.append(f"loses more than no tunnel: {_from(part.family, lossy)}")
        busy = [p for p in own if any(_above(p.estimates.get(m), _SATURATED) for m in _CPU)]
        if busy:
            found.append(f"CPU at its limit: {_from(part.family, busy)}")
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
