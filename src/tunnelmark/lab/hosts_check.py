"""What two real hosts and the line between them can serve for; nothing there is changed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tunnelmark.engine import records
from tunnelmark.hosts.inventory import ROLES, HostEntry, Inventory, Role
from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.hosts.undoing import do_all
from tunnelmark.lab import line
from tunnelmark.lab.clocks import ClockOffset, offset_of
from tunnelmark.lab.computers import Computer
from tunnelmark.lab.doctor import Finding
from tunnelmark.lab.hosts_nat import MEASURING_PORTS
from tunnelmark.lab.hosts_place import HostsPlace
from tunnelmark.lab.line_ends import other_role
from tunnelmark.lab.place import Joined
from tunnelmark.lab.tcp_ports import tcp_open
from tunnelmark.model.host import Need
from tunnelmark.model.overhead import (
    IP_HEADER_BYTES,
    IP_VERSIONS,
    LEAST_IPV6_MTU_BYTES,
    IpName,
)
from tunnelmark.model.quantity import percent
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import ServerPorts, TrafficPath
from tunnelmark.workloads.base import FIRST_PORT, TrialContext
from tunnelmark.workloads.streams import plan, run_streams

LAB_NEED: Final = Need(
    programs={
        "ping": "iputils-ping",
        "ethtool": "ethtool",
        "tcpdump": "tcpdump",
        "sysctl": "procps",
        "tc": "iproute2",
    }
)
"""What every lab on a host uses, whichever the tunnel."""
_LEAST_MTU: Final[Mapping[IpName, int]] = {"ipv4": 576, "ipv6": LEAST_IPV6_MTU_BYTES}
_ICMP_HEADER_BYTES: Final = 8
_CLOCK_PACKETS: Final = 200
_CLOCK_GAP_NS: Final = 10_000_000
_PORT_PACKETS: Final = 5
_PORT_GAP_NS: Final = 100_000_000
_WAIT_NS: Final = 2_000_000_000
_PAYLOAD_BYTES: Final = 64
_NTP: Final = re.compile(r"^NTPSynchronized=(yes|no)$", re.MULTILINE)


@dataclass(frozen=True)
class LineReport:
    """What was found of the line."""

    findings: tuple[Finding, ...]
    mtu_bytes: int | None = None
    clock: ClockOffset | None = None
    """Of the server against the client, on the monotonic clocks that delays are measured by."""


def examine_host(
    computer: Computer, entry: HostEntry, need: Sequence[Need], ip: IpName = "ipv4"
) -> list[Finding]:
    """Look at one host: ``need`` is what it is to have, ``ip`` the version of the line."""
    host = computer.host
    cores = host.run(["nproc"], check=False).text().strip() or "?"
    release = host.run(["uname", "-sr"]).text().strip()
    found = [Finding("ssh", ok=True, message=f"{release}, {cores} cores")]
    found += [_program(host, *pair) for pair in _programs(need).items()]
    found += [
        Finding(f"kernel {feature}", ok=False, message=f"the kernel has no {feature}")
        for feature in dict.fromkeys(feature for one in need for feature in one.kernel)
        if not host.has_kernel(feature)
    ]
    if entry.attach == "routed":
        forwards = line.forwards(host, ip)
        found.append(
            Finding(
                "forwarding",
                ok=forwards,
                message="packets to its routed address are forwarded"
                if forwards
                else "packets to its routed address are not forwarded",
                fix="" if forwards else f"sysctl -w {line.FORWARDING[ip]}=1",
            )
        )
    if host.has("chrt"):
        realtime = host.run(["chrt", "--fifo", "1", "true"], check=False).returncode == 0
        not_allowed = "SCHED_FIFO is not allowed: packets may leave late"
        message = "SCHED_FIFO is allowed" if realtime else not_allowed
        found.append(Finding("real time", ok=True, message=message))
    # Only systemd has it.
    dated = host.run(["timedatectl", "show"], check=False) if host.has("timedatectl") else None
    if dated is not None and (state := _NTP.search(dated.text())):
        words = "set by NTP" if state[1] == "yes" else "not set by NTP"
        found.append(Finding("clock", ok=True, message=f"{words} (delays do not depend on it)"))
    return found


def missing_packages(computer: Computer, need: Sequence[Need]) -> list[str]:
    """Return the Debian packages that would bring what is missing, as far as they are some."""
    missing = (
        one.programs[program]
        for program, one in _programs(need).items()
        if program not in one.install and computer.host.has(program) is None
    )
    return sorted(set(missing))


def examine_line(
    computers: Mapping[Role, Computer],
    inventory: Inventory,
    place: HostsPlace,
    tunnels: Sequence[ServerPorts] = (),
) -> LineReport:
    """Put both ends on the line and look: who answers, MTU, clocks, ports. Removes them again.

    ``tunnels`` are the ports at which the servers of a study's tunnels are reached.
    """
    with _on_line(computers, place) as (joined, path):
        return _look(joined, inventory, place, path, tunnels)


def examine_ports(
    computers: Mapping[Role, Computer],
    inventory: Inventory,
    place: HostsPlace,
    tunnels: Sequence[ServerPorts] = (),
) -> list[Finding]:
    """Try the ports of the inventory on both ends of the line, over UDP and TCP.

    Where the server is behind NAT, those that this must forward are tried too.
    """
    with _on_line(computers, place) as (joined, path):
        return [
            *_forwarded(joined, inventory, place, path, tunnels),
            *_ports(joined, inventory, place, path),
        ]


@contextmanager
def _on_line(
    computers: Mapping[Role, Computer], place: HostsPlace
) -> Iterator[tuple[Joined, TrafficPath]]:
    """Put both ends on the line with the longest packets that their interfaces carry."""
    client, server = place.ends["client"], place.ends["server"]
    widest = min(
        line.parent_of(
            computers[role].host, place.ends[role], place.ends[other_role(role)]
        ).mtu_bytes
        for role in ROLES
    )
    joined = place.make(Topology(widest), through_link=False)
    path = TrafficPath(
        "0",
        str(client.own.ip),
        str(server.reached),
        "eth0",
        "eth0",
        widest,
        server_own=str(server.own.ip) if server.behind_nat else None,
        client_reached=str(client.reached) if client.behind_nat else None,
    )
    try:
        yield joined, path
    finally:
        do_all(*(host.remove for host in (joined.client, joined.server, joined.link)))


def _look(
    joined: Joined,
    inventory: Inventory,
    place: HostsPlace,
    path: TrafficPath,
    tunnels: Sequence[ServerPorts],
) -> LineReport:
    server, widest = path.server_address, path.mtu_bytes
    findings = [_said_of(place)] if any(one.behind_nat for one in place.ends.values()) else []
    mtu_bytes = path_mtu(joined, server, widest, inventory.ip)
    to = "to the NAT before the server" if path.server_own else "from end to end"
    findings.append(
        Finding("mtu", ok=True, message=f"{mtu_bytes} bytes pass {to}")
        if mtu_bytes is not None
        else Finding("mtu", ok=True, message="unknown: no ICMP echo of any size returns")
    )
    (flow,) = _flows(joined, path, place.engine, [FIRST_PORT], _CLOCK_PACKETS, _CLOCK_GAP_NS)
    findings.append(_passing("line", flow, server))
    clock = None if flow is None else offset_of(flow)
    if flow is not None and flow.returned.any():
        findings.append(_clock(clock))
    findings += _forwarded(joined, inventory, place, path, tunnels)
    findings += _ports(joined, inventory, place, path)
    return LineReport(tuple(findings), mtu_bytes, clock)


def _said_of(place: HostsPlace) -> Finding:
    """Say which end is behind NAT."""
    words = [
        f"the {role} is behind NAT, {end.reached} leads to {end.own.ip}"
        for role, end in place.ends.items()
        if end.behind_nat
    ]
    return Finding("nat", ok=True, message="; ".join(words))


def _forwarded(
    joined: Joined,
    inventory: Inventory,
    place: HostsPlace,
    path: TrafficPath,
    tunnels: Sequence[ServerPorts],
) -> list[Finding]:
    """Name the ports that a NAT before the server must forward, and try the first of each range."""
    if path.server_own is None:
        return []
    needed = [*MEASURING_PORTS, *dict.fromkeys(tunnels)]
    named = ", ".join(map(str, needed))
    message = f"the NAT before the server must forward to {path.server_own}: {named}"
    findings = [Finding("forwarding", ok=True, message=message)]
    udp = [one.first for one in needed if one.protocol == "udp"]
    flows = _flows(joined, path, place.engine, udp, _PORT_PACKETS, _PORT_GAP_NS)
    for port, seen in zip(udp, flows, strict=True):
        where = f"server {path.server_address} port {port}"
        findings.append(_passing(f"udp {port}", seen, where))
    findings += [
        _tcp(joined, path, place, one.first, "server") for one in needed if one.protocol == "tcp"
    ]
    listed = {f"{kind} {port}" for port in inventory.server.ports for kind in ("udp", "tcp")}
    return [one for one in findings if one.name not in listed]


def _ports(
    joined: Joined, inventory: Inventory, place: HostsPlace, path: TrafficPath
) -> list[Finding]:
    findings = []
    sides: tuple[tuple[Role, Joined, TrafficPath], ...] = (
        ("server", joined, path),
        ("client", _turned(joined), path.turned()),
    )
    for role, ends, one in sides:
        ports = list(inventory.entry(role).ports)
        flows = _flows(ends, one, place.engine, ports, _PORT_PACKETS, _PORT_GAP_NS)
        for port, seen in zip(ports, flows, strict=True):
            findings.append(
                _passing(f"udp {port}", seen, f"{role} {one.server_address} port {port}")
            )
            findings.append(_tcp(ends, one, place, port, role))
    return findings


def path_mtu(joined: Joined, server: str, widest: int, ip: IpName = "ipv4") -> int | None:
    """Return the longest packet that passes in one piece; None where no echo comes back."""
    headers_bytes = IP_HEADER_BYTES[IP_VERSIONS[ip]] + _ICMP_HEADER_BYTES
    least = _LEAST_MTU[ip]

    def passes(size: int) -> bool:
        words = ["-M", "do", "-c", "2", "-i", "0.2", "-W", "2", "-s"]
        argv = ["ping", *words, str(size - headers_bytes), server]
        return joined.client.run(argv, check=False).returncode == 0

    if not passes(least):
        return None
    if passes(widest):
        return widest
    low, high = least, widest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low


def _clock(clock: ClockOffset | None) -> Finding:
    if clock is None:
        message = "a clock was set during the check: the offset between the clocks is unknown"
        return Finding("clocks", ok=True, message=message)
    offset, error = clock.at((clock.start_ns + clock.end_ns) // 2)
    least, most = clock.drift_ppm
    message = (
        f"the server's monotonic clock is ahead by {offset / 1e9:.6f} s, at most "
        f"{error / 1e6:.3f} ms from that; it drifts by {least:.0f} to {most:.0f} ppm"
    )
    return Finding("clocks", ok=True, message=message)


def _passing(name: str, flow: records.Flow | None, where: str) -> Finding:
    """Say which way packets pass."""
    if flow is None:
        message = f"no packets could be sent to {where}"
        return Finding(name, ok=False, message=message)
    sent, came, back = len(flow.sent_ns), int(flow.arrived.sum()), int(flow.returned.sum())
    if not came:
        message = f"UDP to {where} does not arrive: a firewall on the way, or no route"
        return Finding(name, ok=False, message=message)
    if not back:
        message = f"UDP to {where} arrives, but replies do not return: a firewall on the way back"
        return Finding(name, ok=False, message=message)
    lost = 1 - back / sent
    rtt_ms = float(flow.rtt_ns.min()) / 1e6 if len(flow.rtt_ns) else float("nan")
    message = f"UDP to {where} passes both ways: {rtt_ms:.3f} ms at least, {percent(lost, 1)} lost"
    return Finding(name, ok=True, message=message)


def _tcp(ends: Joined, path: TrafficPath, place: HostsPlace, port: int, role: str) -> Finding:
    where = f"{role} {path.server_address} port {port}"
    reason = tcp_open(ends, path, port, engine=place.engine, owner_pid=place.owner_pid)
    message = f"TCP to {where} connects" if reason is None else f"TCP to {where}: {reason}"
    return Finding(f"tcp {port}", ok=reason is None, message=message)


def _flows(  # noqa: PLR0917 - what a stream is
    joined: Joined,
    path: TrafficPath,
    engine: str,
    ports: Sequence[int],
    packets: int,
    gap_ns: int,
) -> list[records.Flow | None]:
    """Send a stream to each port and return what became of it; None where it could not be sent."""
    found: list[records.Flow | None] = []
    for port in ports:
        context = TrialContext(
            client=joined.client,
            server=joined.server,
            paths=(path,),
            engine=engine,
            seed=port,
            samples_dir=None,
            sample_stem=f"check-{port}",
            progress=lambda _progress: None,
            cancelled=lambda: False,
            owner_pid=HostsPlace.owner_pid,
            one_clock=False,
            first_port=port,
        )
        flows = plan(
            context,
            name="check",
            gap_ns=gap_ns,
            packets=packets,
            payload_bytes=_PAYLOAD_BYTES,
            content={"type": "random"},
            load="each",
        )
        found.append(next(iter(run_streams(context, flows, drain_ns=_WAIT_NS).joined), None))
    return found


def _turned(joined: Joined) -> Joined:
    return Joined(joined.server, joined.client, joined.link)


def _programs(need: Sequence[Need]) -> dict[str, Need]:
    return {program: one for one in need for program in one.programs}


def _program(host: SshHost, program: str, need: Need) -> Finding:
    path = host.has(program)
    if path is not None:
        return Finding(program, ok=True, message=path)
    return Finding(program, ok=False, message="is missing", fix=need.remedy(program))
