"""What cannot be simulated, by name: found before anything runs. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.congestion import unmodelled
from tunnelmark.model.costs import CostModel
from tunnelmark.model.errors import LabError, RefusedError, StudyError, TunnelmarkError
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.trial import Block, DriverSpec, Point
from tunnelmark.sim.carriage import carriage
from tunnelmark.sim.congestion import agreed
from tunnelmark.sim.work import work_of
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.background import loads_of
from tunnelmark.workloads.registry import workload_kinds

_RANDOM: Final = "random"
"""Payload that no tunnel makes smaller."""
_COMPRESSION: Final = "compression is simulated for random payload only, which does not get smaller"
_IS_THE_LINK: Final = frozenset({"wpa2"})
"""Kinds of tunnel that change the link itself."""


@dataclass(frozen=True)
class Sorted:
    """Jobs by what becomes of them."""

    jobs: tuple[Job, ...]
    """With the points that can be simulated."""
    skipped: dict[str, str]
    """What is in the way of the others, by its name."""
    omitted: tuple[str, ...]
    """Jobs of which nothing is left."""


def sort_out(jobs: Sequence[Job], models: Sequence[CostModel]) -> Sorted:
    """Return what can be simulated of some jobs, and why the rest cannot.

    Raises ``StudyError`` where nothing is left.
    """
    kept: list[Job] = []
    omitted: list[str] = []
    reasons: dict[str, str] = {}
    points: Counter[str] = Counter()
    asked = _Asked()
    for job in jobs:
        if (found := _of_job(job, models)) is not None:
            name, reason = found
            reasons[name] = reason
            points[name] += len(job.block.points)
            omitted.append(job.job_id)
            continue
        possible = []
        for point, found in asked.about(job.block):
            if found is None:
                possible.append(point)
                continue
            name, reason = found
            reasons[name] = reason
            points[name] += 1
        if possible:
            kept.append(
                replace(
                    job,
                    block=replace(job.block, points=tuple(possible)),
                    # Traffic takes virtual time, and none of the time that is left.
                    expected_s=dict.fromkeys(job.expected_s, 0.0),
                )
            )
        else:
            omitted.append(job.job_id)
    skipped = {
        name: f"{reason} ({points[name]} point{'s' * (points[name] != 1)})"
        for name, reason in reasons.items()
    }
    if not kept:
        name, reason = next(iter(skipped.items()))
        raise StudyError(f"nothing of the study can be simulated; {name}: {reason}")
    return Sorted(tuple(kept), skipped, tuple(omitted))


def possible_points(blocks: Iterable[Block]) -> int:
    """Return how many points of some blocks can be simulated, if the blocks themselves can."""
    asked = _Asked()
    return sum(found is None for block in blocks for _, found in asked.about(block))


class _Asked:
    """What is in the way of points, each workload over each tunnel asked about once.

    A study has few workloads and tunnels, and many points that are one over the other.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bool], tuple[str, str] | None] = {}

    def about(self, block: Block) -> Iterator[tuple[Point, tuple[str, str] | None]]:
        """Return each point with what is in its way and why, or None."""
        compresses = make(tunnel_kinds(), block.tunnel).compresses
        for point in block.points:
            own = point.tunnel.kind == block.tunnel.kind
            key = (point.workload.label, point.tunnel.label, own and compresses)
            if key not in self._known:
                self._known[key] = _of_workload(point.workload, point.tunnel, compresses=key[-1])
            yield point, self._known[key]


def _of_job(job: Job, models: Sequence[CostModel]) -> tuple[str, str] | None:
    """Return what is in the way of all points of a job and why, or None."""
    block = job.block
    link = make(link_kinds(), block.link)
    if (spec := link.spec(0)) is None:
        reason = "it is as fast as this computer, which is not simulated"
        return f"link {block.link.label}", reason
    tunnel = make(tunnel_kinds(), block.tunnel)
    if tunnel.params.clients is not None:
        reason = "a gateway with its clients is not simulated (count gives pairs)"
        return block.tunnel.label, reason
    lacking = _of_tunnel(tunnel, spec, link.mtu_bytes)
    if lacking is None:
        lacking = tunnel.router_problem(job.topology.router)
    if lacking is not None:
        return block.tunnel.label, lacking
    try:
        work_of(tunnel, block.tunnel, block.device, models)
    except RefusedError as error:
        return f"device {block.device.label}", str(error)
    return None


def _of_tunnel(tunnel: Tunnel, link: AnyLinkSpec, link_mtu_bytes: int) -> str | None:
    """Return why a tunnel cannot be simulated, or None."""
    if not tunnel.modelled:
        return "there is no model of its packets"
    if (lacking := unmodelled(tunnel.params.congestion)) is not None:
        return lacking
    try:
        carriage(tunnel, link, link_mtu_bytes)
    except TunnelmarkError as error:
        return str(error)
    return None


def _of_workload(
    spec: DriverSpec, tunnel: DriverSpec, *, compresses: bool
) -> tuple[str, str] | None:
    """Return what of a workload over a tunnel is in the way and why, or None."""
    if not workload_kinds()[spec.kind].simulated:
        return f"workload {spec.kind}", "there is no model of what its programs send"
    paths = make(tunnel_kinds(), tunnel).params.count
    workload = make(workload_kinds(), spec)
    if (lacking := workload.unmodelled(paths)) is not None:
        return f"workload {spec.label}", lacking
    if compresses and workload.content != _RANDOM:
        name = f"workload {spec.kind} of {workload.content} payload over {tunnel.label}"
        return name, _COMPRESSION
    return _of_loads(spec, tunnel, compresses=compresses)


def _of_loads(spec: DriverSpec, tunnel: DriverSpec, *, compresses: bool) -> tuple[str, str] | None:
    """Return which load beside a workload is in the way and why, or None."""
    driver = make(tunnel_kinds(), tunnel)
    try:
        agreed(spec)
    except LabError as error:
        return f"workload {spec.label}", str(error)
    for load in loads_of(spec):
        kind, paths = load.workload.kind, 1 if load.outside else driver.params.count
        lacking = None
        if not load.workload.simulated:
            lacking = f"there is no model of what the programs of {kind} send"
        elif (found := load.workload.unmodelled(paths)) is not None:
            lacking = found
        elif load.outside and tunnel.kind in _IS_THE_LINK:
            lacking = f"outside of {tunnel.kind} is another network, which is not simulated"
        elif compresses and not load.outside and load.workload.content != _RANDOM:
            lacking = _COMPRESSION
        if lacking is not None:
            return f"workload {spec.kind} beside {load.label}", lacking
    return None
