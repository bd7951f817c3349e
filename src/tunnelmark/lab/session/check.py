"""Every driver of some jobs is asked before anything is made, and each tunnel gets its place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tunnelmark.devices.registry import is_limited
from tunnelmark.hosts.local import LocalHost
from tunnelmark.lab.hosts_placement import HostsPlacement
from tunnelmark.lab.placement import Placement
from tunnelmark.model.errors import LabError
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.topology import Router
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import Encryption
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.congestion import wanted_by
from tunnelmark.workloads.registry import workload_kinds

_TIMED_HERE: Final = (
    "the set-up of a tunnel is timed in network namespaces of this computer, not in a virtual "
    "machine or over SSH (use --place local)"
)


def check_jobs(
    jobs: Sequence[Job], placement: Placement | HostsPlacement
) -> tuple[dict[str, str], set[str]]:
    """Ask every driver before anything is made, and choose where each tunnel runs.

    Returns the tunnels that cannot run with the reason, and all programs that are needed. Raises
    ``LabError`` if a workload cannot run, or no tunnel can.
    """
    workloads = _workloads(jobs)
    _check_congestion(jobs)
    programs = {program for workload in workloads.values() for program in workload.need().programs}
    # Those that must stand together are asked for, also where only one of them is to run.
    asked_for = _by_label(spec for job in jobs for spec in (job.block.tunnel, *job.together))
    tunnels = {label: spec for label, spec in asked_for.items() if spec.kind != BASELINE}
    restarts = any(workload.restarts or workload.joining for workload in workloads.values())
    router = jobs[0].topology.router
    skipped, chosen = _placed(tunnels, router, placement, restarts=restarts)
    if isinstance(placement, HostsPlacement):
        for name, workload in workloads.items():
            if reason := placement.workload_problem(workload):
                raise LabError(f"{name}: {reason}")
    if jobs[0].together:
        placement.gather({label: tunnel.unavailable for label, tunnel in chosen.items()})
    for label, reason in _unable_gateways(jobs, chosen, placement).items():
        del chosen[label]
        skipped[label] = reason
    own = {job.block.tunnel.label for job in jobs}
    running = {label: tunnel for label, tunnel in chosen.items() if label in own}
    asked = [(tunnel, host) for label, tunnel in running.items() for host in placement.hosts(label)]
    for tunnel, host in asked:
        programs |= set(tunnel.need(host).programs)
        for name, workload in workloads.items():
            if reason := workload.unavailable(host):
                raise LabError(f"{name}: {reason}")
    _check_devices(jobs, running, placement)
    if own <= set(skipped):
        label, reason = next((label, skipped[label]) for label in skipped if label in own)
        raise LabError(f"no tunnel of the study can run here; {label}: {reason}")
    return {label: reason for label, reason in skipped.items() if label in own}, programs


def programs_of(jobs: Sequence[Job], placement: Placement | HostsPlacement) -> set[str]:
    """Return the programs of the tunnels of some jobs, as far as these could run on this computer.

    Nothing is placed, and no machine is booted for it.
    """
    host = placement.local_host() if isinstance(placement, Placement) else ""
    if isinstance(host, str):
        return set()
    specs = _by_label(job.block.tunnel for job in jobs).values()
    tunnels = [make(tunnel_kinds(), spec) for spec in specs if spec.kind != BASELINE]
    able = [tunnel for tunnel in tunnels if tunnel.unavailable(host) is None]
    return {program for tunnel in able for program in tunnel.need(host).programs}


def _placed(
    tunnels: Mapping[str, DriverSpec],
    router: Router,
    placement: Placement | HostsPlacement,
    *,
    restarts: bool,
) -> tuple[dict[str, str], dict[str, Tunnel]]:
    """Return the tunnels that can run nowhere with the reason, and the others."""
    skipped: dict[str, str] = {}
    chosen: dict[str, Tunnel] = {}
    for label, spec in tunnels.items():
        tunnel = make(tunnel_kinds(), spec)
        reason = tunnel.router_problem(router) or placement.choose(label, tunnel.unavailable)
        if not reason and isinstance(placement, HostsPlacement):
            reason = placement.tunnel_problem(tunnel)
        if reason:
            skipped[label] = reason
        elif all(isinstance(host, LocalHost) for host in placement.hosts(label)):
            chosen[label] = tunnel
        elif restarts:
            skipped[label] = _TIMED_HERE
        else:
            chosen[label] = tunnel
    return skipped, chosen


def _unable_gateways(
    jobs: Sequence[Job], chosen: Mapping[str, Tunnel], placement: Placement | HostsPlacement
) -> dict[str, str]:
    """Return the gateways whose clients cannot stand where the tunnel was placed, with why."""
    found = {}
    for label, tunnel in chosen.items():
        devices = [job.block.device for job in jobs if job.block.tunnel.label == label]
        if tunnel.params.clients is not None and (
            reason := placement.gateway_problem(label, devices)
        ):
            found[label] = reason
    return found


def _check_devices(
    jobs: Sequence[Job], running: Mapping[str, Tunnel], placement: Placement | HostsPlacement
) -> None:
    """Ask for each limited device of the jobs, for the tunnels that run on it."""
    for device in _by_label(job.block.device for job in jobs).values():
        if is_limited(device):
            there = {job.block.tunnel.label for job in jobs if job.block.device == device}
            encryptions = {
                label: tunnel.encryption(placement.hosts(label)[0])
                for label, tunnel in running.items()
                if label in there
            }
            placement.check_device(device, encryptions or {BASELINE: Encryption()})


def _check_congestion(jobs: Sequence[Job]) -> None:
    """Refuse a workload that wants another congestion control than a load beside it."""
    for spec in _specs(jobs).values():
        try:
            wanted_by([make(workload_kinds(), one) for one in (spec, *_beside(spec))])
        except LabError as error:
            raise LabError(f"workload {spec.label}: {error}") from None


def _workloads(jobs: Sequence[Job]) -> dict[str, Workload]:
    """Return what runs by what it is called, the background too: a label may be of one of each."""
    specs = _specs(jobs)
    loads = _by_label(load for spec in specs.values() for load in _beside(spec))
    named = {f"workload {label}": spec for label, spec in specs.items()}
    named |= {f"background {label}": spec for label, spec in loads.items()}
    return {name: make(workload_kinds(), spec) for name, spec in named.items()}


def _specs(jobs: Sequence[Job]) -> dict[str, DriverSpec]:
    return _by_label(point.workload for job in jobs for point in job.block.points)


def _beside(spec: DriverSpec) -> Iterator[DriverSpec]:
    for one in spec.background:
        yield DriverSpec(one.kind, one.label, one.params)


def _by_label(specs: Iterable[DriverSpec]) -> dict[str, DriverSpec]:
    found: dict[str, DriverSpec] = {}
    for spec in specs:
        found.setdefault(spec.label, spec)
    return found
