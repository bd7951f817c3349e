"""What passes between the run and a tunnel driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal

from tunnelmark.model.host import Host, Process
from tunnelmark.model.overhead import IpName, IpVersion

Side = Literal["client", "server"]
"""One of the two ends of a tunnel."""


class Milestone(StrEnum):
    """How far one tunnel is on its way up, as its driver tells ``Site.reached``, in this order."""

    DIALING = "dialing"
    """The server is ready; the next thing is the start of the client, or its first packet."""
    AGREED = "agreed"
    """Both ends say that it is up, and nothing has passed through it. A tunnel whose handshake is
    begun by the first packet has no such moment and leaves it out."""
    PROBING = "probing"
    """The first packet is about to be sent through it."""
    ANSWERED = "answered"
    """An answer has come back through it."""


@dataclass(frozen=True)
class Endpoint:
    """One end of the link on which a tunnel is built."""

    host: Host
    ipv4: str
    """Address on the link, without prefix length."""
    ipv6: str
    interface: str
    mtu_bytes: int
    netns: str | None = None
    """Path of its network namespace, for a program elsewhere that opens sockets there: of every
    client of a gateway but the first, in whose namespace that program runs."""
    reached: str | None = None
    """Address by which the other end reaches it, where that is not its own: it is behind NAT."""
    wire: str | None = None
    """Interface of the gateway that leads to it, of every client with a wire of its own but the
    first; None: the one that the gateway's own endpoint names."""

    def own(self, ip: IpName) -> str:
        """Return its own address: to listen on and to send from."""
        return self.ipv4 if ip == "ipv4" else self.ipv6

    def advertised(self, ip: IpName) -> str:
        """Return the address that the other end sends to."""
        if self.reached is None or (":" in self.reached) != (ip == "ipv6"):
            return self.own(ip)
        return self.reached


@dataclass(frozen=True)
class ServerPorts:
    """Ports at which a server is reached, one behind the other."""

    protocol: Literal["udp", "tcp"]
    first: int
    count: int = 1

    @property
    def last(self) -> int:
        """The last of them."""
        return self.first + self.count - 1

    def __str__(self) -> str:
        """Return them for a message: ``UDP 1194`` or ``TCP 7700 to 7715``."""
        last = f" to {self.last}" if self.count > 1 else ""
        return f"{self.protocol.upper()} {self.first}{last}"


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
    """Tunnel number to (client, server) inner IPv6 address, a /64 of fd00:7470::/28."""
    engine: str = ""
    """Path of ``tunnelmark-engine`` on both ends."""
    owner_pid: int = 1
    """Process, as the ends see it, with whose end everything there ends."""
    spin: bool = True
    """Whether a medium that a driver brings waits awake shortly before a frame is due."""
    nat_ipv4: str | None = None
    """What the server sees in place of the client's IPv4 address, where NAT is between them."""
    nat_helpers: frozenset[str] = frozenset()
    """Protocols whose connections that NAT follows though they have no ports of their own."""
    shared: "SharedMedium | None" = None
    """What the study's link is, where both directions share it (a WLAN)."""
    clients: tuple[Endpoint, ...] = ()
    """All clients of a gateway, ``client`` first; empty where there is no gateway."""

    reached: Callable[[Milestone], None] = lambda _milestone: None
    """Called by drivers that have a handshake (``Tunnel.tells_set_up``) how far they are."""
    patience: Callable[[float], float] = lambda usual_s: usual_s
    """Seconds that a driver usually waits for the other end to those that it may wait now."""

    def client_of(self, number: int) -> Endpoint:
        """Return the client's end of tunnel ``number``."""
        return self.clients[number] if self.clients else self.client


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
    counters: Callable[[], Mapping[str, Any] | None]
    """The emulator's report as docs/engine.md has it; None if it does not answer."""
    begin: Callable[[], Mapping[str, Any] | None]
    """Likewise, and its recent lateness begins now."""
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
    client: Endpoint | None = None
    """Where its client is, one of several of a gateway; None: the only one."""
    server: Endpoint | None = None
    """Where its server is; None: the only one. Of a path that is looked at from the other end, its
    client's place."""
    server_own: str | None = None
    """The server's own address where ``server_address`` is that of a NAT before it."""
    client_reached: str | None = None
    """Where the server reaches the client, if not at ``client_address``: a NAT is before it."""

    @property
    def ip(self) -> IpName:
        """The IP version of its packets."""
        return "ipv6" if ":" in self.client_address else "ipv4"

    @property
    def server_listens(self) -> str:
        """Address at which programs of the server listen."""
        return self.server_own or self.server_address

    def turned(self) -> "TrafficPath":
        """Return the path as the other end sees it: the server sends and the client answers."""
        return replace(
            self,
            client_address=self.server_listens,
            server_address=self.client_reached or self.client_address,
            client_interface=self.server_interface,
            server_interface=self.client_interface,
            client=self.server,
            server=self.client,
            server_own=None if self.client_reached is None else self.client_address,
            client_reached=None if self.server_own is None else self.server_address,
        )


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


CipherLibrary = Literal["OpenSSL", "GnuTLS", "Go", "ring"]
"""Whose code a program encrypts with; Go: its standard library and golang.org/x/crypto."""


@dataclass(frozen=True)
class Encryption:
    """What will encrypt a tunnel's data packets, before it is brought up."""

    cipher: str | None = None
    """None: nothing does, or the parameters alone do not decide it."""
    library: CipherLibrary | None = None
    """None: not known, or no program does."""


@dataclass(frozen=True)
class Negotiated:
    """What the program itself says was agreed, not what was asked for."""

    cipher: str | None
    version: str
    """Program and version, for example ``OpenVPN 2.6.14``."""
    implementation: str
    """What does the work, in words: ``kernel``, ``wireguard-go``, ``openvpn`` …."""
    mtu_bytes: int
    data_path: DataPath | None
    """None: not known, in results that did not record it."""
    details: Mapping[str, str] = field(default_factory=dict)


CARRIER_CONGESTION: Final = "carrier_congestion"
"""Among the details: the congestion control of the TCP connections that carry the tunnel."""
CARRIER_CHOSEN_BY: Final = "carrier_congestion_chosen_by"
"""Among the details beside it: ``study`` or ``kernel``."""


@dataclass(frozen=True)
class WireRule:
    """How every packet of the tunnel must look on the link."""

    encrypted: bool
    """Whether the marker must be absent; False only for reference points without a cipher."""
    describe: str
    """For example ``UDP to or from port 1194``."""
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
    least_carrier_bytes: int = 0
    """UDP payload of the shortest packet that carries anything; shorter ones (of QUIC) only
    acknowledge."""


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
