"""What passes between the run and a tunnel driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tunnelmark.model.host import Host, Process
from tunnelmark.model.overhead import IpVersion


@dataclass(frozen=True)
class Endpoint:
    """One end of the link on which a tunnel is built."""

    host: Host
    ipv4: str
    """Address on the link, without prefix length."""
    ipv6: str
    interface: str
    mtu_bytes: int


@dataclass(frozen=True)
class Site:
    """What a tunnel driver is handed: two ends, and addresses it may use inside."""

    client: Endpoint
    server: Endpoint
    prefix: str
    """Start of every name made on the machine, at most 8 characters: ``tm3fa2c1``."""
    inner_ipv4: Callable[[int], tuple[str, str]]
    """Tunnel number to (client, server) inner IPv4 address, a /30 of 198.19.0.0/16."""
    inner_ipv6: Callable[[int], tuple[str, str]]
    """Tunnel number to (client, server) inner IPv6 address, a /64 of fd00::/8."""
    engine: str = ""
    """Path of ``tunnelmark-engine`` on both ends."""
    owner_pid: int = 1
    """Process, as the ends see it, with whose end everything there ends."""
    nat_ipv4: str | None = None
    """What the server sees in place of the client's IPv4 address, where NAT is between them."""
    shared: "SharedMedium | None" = None
    """What the study's link is, where both directions share it (a WLAN)."""


@dataclass(frozen=True)
class SharedMedium:
    """A link that both directions share, for a tunnel that is itself on that medium."""

    config: Mapping[str, object]
    """The engine's form of it, ``medium`` in docs/engine.md."""
    seed: int


@dataclass(frozen=True)
class Medium:
    """A medium that the tunnel itself brought: it stands in for the lab's link."""

    process: Process
    counters: Callable[[], tuple[Mapping[str, Any], Mapping[str, Any]] | None]
    """(forward, reverse) as docs/engine.md names them; None if it does not answer."""
    problem: Callable[[], str | None]
    header_bytes: int
    """What its ``offered_bytes`` count in each frame beside an IP packet's own link header: 0."""


@dataclass(frozen=True)
class AirTap:
    """Where the proof listens to a tunnel that is on air: an interface of the client's host."""

    interface: str
    """A monitor interface, down until it is needed."""
    macs: tuple[str, ...]
    """Address of the client's station, one for each path."""


@dataclass(frozen=True)
class TrafficPath:
    """Where to send traffic so that it goes through one tunnel (or none)."""

    name: str
    """``0`` to ``n-1``."""
    client_address: str
    server_address: str
    client_interface: str
    server_interface: str
    mtu_bytes: int
    """MTU of the inner interface at the client."""
    link_address: str | None = None
    """The client's address on the link, where this path has one beside the endpoint's."""


class DataPath(StrEnum):
    """Where a tunnel does its work on a data packet. What is only in part a program is none."""

    USER_SPACE = "user space"
    """In the processes of ``TunnelUp.processes``: their CPU time is the tunnel's."""
    KERNEL = "kernel"
    """In softirq and in the system calls of whoever sends."""
    KERNEL_THREADS = "kernel threads"
    """In threads of the kernel that the tunnel has for itself, and as ``KERNEL``."""
    LINK = "link"
    """The link itself does it, as the radios of a WLAN do."""


@dataclass(frozen=True)
class Negotiated:
    """What the program itself says was agreed, not what was asked for."""

    cipher: str | None
    version: str
    """Program and version, e.g. ``OpenVPN 2.6.14``."""
    implementation: str
    """What does the work, in words: ``kernel``, ``wireguard-go``, ``openvpn`` …."""
    mtu_bytes: int
    data_path: DataPath | None
    """None: not known, in results that did not record it."""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WireRule:
    """How every packet of the tunnel must look on the link."""

    encrypted: bool
    """Whether the marker must be absent; False only for reference points without a cipher."""
    describe: str
    """E.g. ``UDP to or from port 1194``."""
    ip_protocols: tuple[int, ...]
    """Allowed IP protocol numbers."""
    udp_ports: tuple[int, ...] = ()
    """If not empty: a UDP packet must have one of these as source or destination."""
    tcp_ports: tuple[int, ...] = ()
    ether_types: tuple[int, ...] = ()
    """Allowed types of frames that are not IP: 0x88E5 for MACsec."""
    ip_version: IpVersion | None = None
    """IP version of every packet; None: either."""
    compresses: bool = False
    """Packets are compressed with a memory of earlier ones: their sizes say nothing of overhead."""


@dataclass(frozen=True)
class TunnelUp:
    """A tunnel that is up."""

    paths: tuple[TrafficPath, ...]
    negotiated: tuple[Negotiated, ...]
    """One per tunnel."""
    wire: WireRule
    processes: tuple[tuple[str, Process], ...] = ()
    """(host name, daemon) of everything whose CPU is the tunnel's own."""
    medium: Medium | None = None
    """What carries it in place of the lab's link; only where ``Tunnel.is_link``."""
    tap: AirTap | None = None
    """Where the proof listens if not at the lab's link."""
    reference: "TunnelUp | None" = None
    """The baseline of this tunnel where traffic beside it cannot be one: the same medium, bare."""
