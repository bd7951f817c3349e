"""What NAT before an end of a real line asks for: ports to forward, and who may send first."""

from collections.abc import Iterable, Sequence
from typing import Final

from tunnelmark.lab.line_ends import Ends
from tunnelmark.lab.session.two_clocks import CLOCK_PORT
from tunnelmark.model.tunnel import ServerPorts
from tunnelmark.probes.prober import PROBE_PORT
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.workloads.base import FIRST_PORT, PORTS, Workload, ports_of

MEASURING_PORTS: Final = (
    ServerPorts("udp", CLOCK_PORT),
    ServerPorts("udp", FIRST_PORT, PORTS),
    ServerPorts("tcp", FIRST_PORT, PORTS),
    ServerPorts("udp", PROBE_PORT),
)
"""Where the server is reached beside the tunnel: clocks, workloads, the proof by wire."""


def forwarded(
    tunnels: Sequence[Tunnel], workloads: Iterable[Workload], *, most_loads: int = 0
) -> tuple[ServerPorts, ...]:
    """Return the ports of a study that a NAT before the server must forward beside the usual.

    ``most_loads`` run beside one of its workloads, each with ports of its own.
    """
    found = [port for tunnel in tunnels for port in tunnel.forwarded() or ()]
    found += [port for workload in workloads for port in workload.line_ports]
    paths = max((tunnel.params.count for tunnel in tunnels), default=1)
    if count := ports_of(paths) * (1 + most_loads) - PORTS:
        first = FIRST_PORT + PORTS
        found += [ServerPorts("udp", first, count), ServerPorts("tcp", first, count)]
    return tuple(dict.fromkeys(found))


def tunnel_problem(tunnel: Tunnel, ends: Ends) -> str | None:
    """Return why a tunnel cannot work between these ends, or None."""
    # The address of the other end is then not on the same wire.
    routed = any(end.entry.attach == "routed" or end.entry.gateway for end in ends.values())
    if routed and (reason := tunnel.router_problem("routed")):
        return reason
    reasons = (tunnel.nat_problem(role) for role, end in ends.items() if end.behind_nat)
    return next((reason for reason in reasons if reason), None)


def workload_problem(workload: Workload, ends: Ends) -> str | None:
    """Return why a workload cannot be measured beside a tunnel between these ends, or None."""
    if not (workload.server_begins and ends["client"].behind_nat):
        return None
    return (
        "its server sends first, which the NAT before the client keeps out of the baseline "
        "(exchange client and server in the inventory)"
    )
