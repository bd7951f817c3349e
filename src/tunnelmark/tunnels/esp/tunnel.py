"""What the drivers of IPsec share: ends with an IKE daemon, ways into ESP, what was agreed."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, Final, Generic, Literal, TypeVar

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.esp import ESP_SUITES, esp
from tunnelmark.model.host import Host, Process
from tunnelmark.model.overhead import (
    IP_VERSIONS,
    Encapsulation,
    best_inner_mtu,
)
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import (
    DataPath,
    Endpoint,
    Milestone,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TrafficPath,
    TunnelUp,
)
from tunnelmark.tunnels.addressing import (
    alone,
    check_inner_mtu,
    client_ends,
    gateway_address,
    inner_addresses,
    no_dad,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.esp.daemon import IkeDaemon, settled_sas
from tunnelmark.tunnels.esp.groups import hold_group
from tunnelmark.tunnels.esp.params import EspParams
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa
from tunnelmark.tunnels.esp.suites import (
    NAT_NEEDS_UDP,
    Agreement,
    Mode,
    check_pair,
    esp_rule,
)
from tunnelmark.tunnels.support import (
    Watched,
    first_problem,
    first_through,
    inner_interface,
    interfaces,
)

Implementation = Literal["kernel", "libipsec"]

INITIATE_LIMIT_S: Final = 30.0
_FIRST_PACKET_LIMIT_S: Final = 15.0

DaemonT = TypeVar("DaemonT", bound=IkeDaemon)


@dataclass
class End(Generic[DaemonT]):
    """A place at which tunnels end."""

    side: Side
    endpoint: Endpoint
    daemon: DaemonT
    numbers: tuple[int, ...] = (0,)
    """The tunnels that end here: all of them, or the one of a gateway's client."""
    undo: list[list[str]] = field(default_factory=list)
    """Commands that remove what was made in the kernel, oldest first."""

    def ip(self, *words: str, undo: Sequence[str] = ()) -> None:
        """Run the program ip; ``undo`` is noted before."""
        if undo:
            self.undo.append(["ip", *undo])
        self.endpoint.host.run(["ip", *words])


class EspTunnel(Tunnel, Generic[DaemonT]):
    """``count`` pairs of ESP associations; what they hang on is the subclass's.

    With ``clients`` one daemon of the server has an association with each client's daemon. All of
    them are behind one interface of the server, with one address on it.
    """

    gateway: ClassVar[bool] = True

    tells_set_up: ClassVar[bool] = True
    params: EspParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._chosen: Implementation = "kernel"
        self._ends: list[End[DaemonT]] = []
        """Clients, then the server."""
        self._watched: list[Watched] = []

    @property
    def _mode(self) -> Mode:
        return "tunnel"

    @property
    def _aggfrag(self) -> bool:
        """Whether tunnel mode has the payload of IP-TFS (RFC 9347)."""
        return False

    @property
    def _ipcomp(self) -> bool:
        return False

    @property
    def _ike_version(self) -> int:
        return 2

    @property
    def _own_group(self) -> str | None:
        """Return the group of a key exchange of ESP's own, in IANA's name."""
        return None

    @property
    def _own_group_at_once(self) -> bool:
        """Whether the first keys of ESP have one, too."""
        return False

    @abstractmethod
    def _start(self, side: Side, endpoint: Endpoint, numbers: tuple[int, ...]) -> End[DaemonT]:
        """Start the daemon of an end."""

    @abstractmethod
    def _make_interfaces(self, site: Site, end: End[DaemonT], mtu_bytes: int) -> None:
        """Make what the selectors of tunnel mode stand behind, where no daemon makes it later."""

    @abstractmethod
    def _prepare(self, site: Site, clients: Sequence[End[DaemonT]], server: End[DaemonT]) -> None:
        """Hand all daemons their configuration, and make ways into the associations."""

    @abstractmethod
    def _establish(self, site: Site, client: End[DaemonT], server: End[DaemonT]) -> None:
        """Bring all associations of a client up, named by ``child_name``: by ``_initiate``."""

    @abstractmethod
    def _authentication(self) -> str:
        """Return how the ends prove who they are, for the report."""

    def bring_up(self, site: Site) -> TunnelUp:
        """Start all daemons, bring up all associations, hold what both ends say to the study."""
        self._chosen = self._choose(site.client.host)
        mtu_bytes = self._mtu_bytes(site)
        every = tuple(range(self.params.paths))
        clients = [
            self._begin("client", endpoint, every if number is None else (number,))
            for endpoint, number in client_ends(site)
        ]
        server = self._begin("server", site.server, every)
        for end in (*clients, server):
            end.daemon.wait_ready()
            self._make_interfaces(site, end, mtu_bytes)
        self._prepare(site, clients, server)
        for end in clients:
            self._establish(site, end, server)
        negotiated = self._negotiated(mtu_bytes)
        paths = self._paths(site, mtu_bytes)
        for path in paths:
            self._first_through(site, path)
        self._watched = [
            end.daemon.watched(name)
            for end in self._ends
            for name in dict.fromkeys(
                self._interface(site, end.side, number) for number in end.numbers
            )
        ]
        return TunnelUp(
            paths=paths,
            negotiated=negotiated,
            wire=esp_rule(
                self.params.suite,
                udp_encapsulation=self._udp_encapsulation(),
                ip_version=IP_VERSIONS[self.params.outer],
            ),
            processes=self.processes(),
        )

    def processes(self) -> tuple[tuple[str, Process], ...]:
        """Return the daemons of all ends."""
        return tuple((end.endpoint.host.name, end.daemon.process) for end in self._ends)

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(self._watched)

    def check_agreed(self) -> None:
        """Read the associations of all ends again."""
        self._associations()

    def down(self) -> None:
        """Stop the daemons, whose associations go with them; remove what the kernel keeps."""
        self._watched = []
        while self._ends:
            end = self._ends.pop()
            end.daemon.stop()
            while end.undo:
                # It may be gone already: half-up, or with the daemon, which is not a failure here.
                end.endpoint.host.run(end.undo.pop(), check=False)

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:
        """Return the longest packet that ESP carries whole.

        IP-TFS carries longer packets in pieces: there the link's own MTU is no worse than another.
        """
        in_pieces = self._mode == "transport" or self._aggfrag
        return link_mtu_bytes if in_pieces else self._fits_bytes(link_mtu_bytes, implementation)

    @property
    def packet_cipher(self) -> str:
        """Suite of ESP."""
        return self.params.suite

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of ESP; with IPComp those of a packet that does not get smaller.

        RFC 3173 section 2.2: such a packet is sent without any IPComp header.
        """
        return self._encapsulation(agreed.mtu_bytes, agreed.implementation)

    def _encapsulation(self, inner_mtu_bytes: int, implementation: str) -> Encapsulation:
        chosen: Implementation = "libipsec" if implementation == "libipsec" else "kernel"
        return esp(
            ESP_SUITES[self.params.suite],
            mode=self._mode,
            inner_mtu_bytes=inner_mtu_bytes,
            udp_encapsulation=self._udp_encapsulation(chosen),
            outer_ip=IP_VERSIONS[self.params.outer],
            # IPComp makes one piece of them again.
            cut_before=self._mode == "transport"
            and self.params.outer == "ipv4"
            and not self._ipcomp,
            aggfrag=self._aggfrag,
        )

    def _choose(self, host: Host) -> Implementation:  # noqa: ARG002 - for subclasses
        return "kernel"

    def _udp_encapsulation(self, chosen: Implementation | None = None) -> bool:  # noqa: ARG002
        return bool(self.params.udp_encapsulation)

    def _fits_bytes(self, link_mtu_bytes: int, implementation: str) -> int:
        """Return the longest packet that ESP carries whole over a link."""
        model = self._encapsulation(link_mtu_bytes, implementation)
        return best_inner_mtu(link_mtu_bytes=link_mtu_bytes, encapsulation=model)

    def _mtu_bytes(self, site: Site) -> int:
        link = min(site.client.mtu_bytes, site.server.mtu_bytes)
        wanted = self.params.mtu_bytes or self.default_mtu_bytes(link, self._chosen)
        whole = self._mode == "tunnel" and not self._aggfrag
        if whole and wanted > (fits := self._fits_bytes(link, self._chosen)):
            # The kernel would learn the same from the first packet that is longer, and lose it.
            raise RefusedError(
                f"{self.kind}: mtu_bytes is {wanted}, ESP carries at most {fits} whole over a link "
                f"of {link} bytes"
            )
        check_inner_mtu(self.kind, self.params.inner, wanted)
        return wanted

    def _initiate(self, site: Site, client: End[DaemonT], server: End[DaemonT]) -> None:
        site.reached(Milestone.DIALING)
        for number in client.numbers:
            limit_s = ceil(site.patience(INITIATE_LIMIT_S))
            client.daemon.initiate(child_name(number), limit_s=limit_s, peer=server.daemon)
        site.reached(Milestone.AGREED)

    def _first_through(self, site: Site, path: TrafficPath) -> None:
        if words := first_through(site, path, limit_s=_FIRST_PACKET_LIMIT_S):
            raise TunnelError(
                f"no echo through {self.kind} tunnel {path.name} within "
                f"{_FIRST_PACKET_LIMIT_S:g} s, though both ends have its associations: {words}"
            )

    def _begin(self, side: Side, endpoint: Endpoint, numbers: tuple[int, ...]) -> End[DaemonT]:
        end = self._start(side, endpoint, numbers)
        if self._chosen == "kernel":
            # A daemon that was killed leaves them behind.
            end.undo += [["ip", "xfrm", "state", "flush"], ["ip", "xfrm", "policy", "flush"]]
        self._ends.append(end)
        return end

    def _check_interfaces(self, site: Site, end: End[DaemonT], mtu_bytes: int) -> None:
        """Raise ``TunnelError`` unless the kernel shows all of an end up, with the MTU."""
        states = interfaces(end.endpoint.host)
        for number in end.numbers:
            name = self._interface(site, end.side, number)
            state = states.get(name)
            if state is None or state.mtu_bytes != mtu_bytes or not state.up:
                raise TunnelError(
                    f"{self.kind} {end.side} of tunnel {number}: interface {name} is {state}, "
                    f"wanted up with MTU {mtu_bytes}"
                )

    def _address(self, site: Site, end: End[DaemonT], number: int) -> None:
        """Put the address of a tunnel with its peer on the inner interface; a gateway has one."""
        own, other = self._inner(site, end.side, number)
        name = self._interface(site, end.side, number)
        if site.clients and end.side == "server":
            if number == end.numbers[0]:
                end.ip("address", "add", gateway_address(own), "dev", name, *no_dad(own))
            return
        # A client that joins again has it already.
        peer = ["address", "replace", own, "peer", alone(other), "dev", name]
        end.ip(*peer, *no_dad(own))

    def _interface(self, site: Site, side: Side, number: int) -> str:
        if self._mode == "transport":
            if side == "client":
                return site.client_of(number).interface
            return site.client_of(number).wire or site.server.interface
        one = bool(site.clients) and side == "server"
        return inner_interface(site, "e", 0 if one else number, side)

    def _interface_id(self, number: int) -> int:
        """Return the id of an interface and its associations; a gateway has one interface."""
        return 1 if self.params.clients is not None else number + 1

    def _inner(self, site: Site, side: Side, number: int) -> tuple[str, str]:
        """Return (own, other) address inside."""
        client, server = inner_addresses(site, number, self.params)
        return (client, server) if side == "client" else (server, client)

    def _outer(self, site: Site, side: Side, number: int) -> tuple[str, str]:
        """Return (own, other) address on the link, the client's as the server sees it."""
        if side == "server" and self.params.outer == "ipv4" and site.nat_ipv4 is not None:
            return site.server.ipv4, site.nat_ipv4
        ends = (site.client_of(number), site.server)
        own, other = ends if side == "client" else ends[::-1]
        return own.own(self.params.outer), other.advertised(self.params.outer)

    def forwarded(self) -> tuple[ServerPorts, ...] | None:
        """Return the ports of IKE and of ESP inside UDP (RFC 3948); ESP itself has none."""
        if self._mode == "transport" or not self._encapsulates:
            return None
        return (ServerPorts("udp", 500), ServerPorts("udp", 4500))

    def router_problem(self, router: Router) -> str | None:
        """In transport mode traffic has addresses of its own on the link, which no router knows."""
        if self._mode == "transport" and router != "none":
            return f"{self.title} in transport mode cannot pass a router"
        if router == "nat" and self.params.udp_encapsulation is False:
            return NAT_NEEDS_UDP
        return super().router_problem(router)

    def nat_problem(self, side: Side) -> str | None:
        """Return that ESP has no ports by which a NAT could know its flows, or None."""
        if not self._encapsulates:
            return NAT_NEEDS_UDP
        return super().nat_problem(side)

    @property
    def _encapsulates(self) -> bool:
        """Whether the parameters alone decide that ESP is inside UDP."""
        return bool(self.params.udp_encapsulation)

    def _negotiated(self, mtu_bytes: int) -> tuple[Negotiated, ...]:
        pairs = self._associations()
        # All clients run the same program.
        client, server = self._ends[0], self._ends[-1]
        versions = dict.fromkeys(end.daemon.version() for end in (client, server))
        kernel = client.endpoint.host.run(["uname", "-sr"]).text().strip()
        found = []
        for ike, sa in pairs:
            found.append(
                Negotiated(
                    cipher=self.params.suite,
                    version=" / ".join(versions),
                    implementation=self._chosen,
                    mtu_bytes=mtu_bytes,
                    data_path=DataPath.KERNEL if self._chosen == "kernel" else DataPath.USER_SPACE,
                    details={
                        "esp": kernel if self._chosen == "kernel" else "kernel-libipsec",
                        "key_exchange": f"IKEv{ike.version} {ike.suite}",
                        "auth": self._authentication(),
                        "mode": sa.mode.lower(),
                        "encryption": f"{sa.encryption} {sa.key_bits or ''}".strip(),
                        "integrity": sa.integrity or "in the cipher",
                        "udp_encapsulation": "on" if sa.udp_encapsulation else "off",
                        "compression": "IPComp deflate" if sa.ipcomp else "none",
                        "sequence_numbers": "64 bits" if sa.esn else "32 bits",
                        "own_key_exchange": sa.group or "none",
                        "selectors": f"{' '.join(sa.local)} to {' '.join(sa.remote)}",
                    },
                )
            )
        return tuple(found)

    def _associations(self) -> list[tuple[IkeSa, ChildSa]]:
        """Return the client's of each tunnel, held to the study and to the server's."""
        wanted = Agreement(
            ike_version=self._ike_version,
            mode="iptfs" if self._aggfrag else self._mode,
            suite=self.params.suite,
            udp_encapsulation=self._udp_encapsulation(),
            ipcomp=self._ipcomp,
            esn=self.params.esn,
            group=self._own_group,
            group_needed=self._own_group_at_once,
        )
        ends = [(end.daemon, [child_name(number) for number in end.numbers]) for end in self._ends]
        *clients, server = settled_sas(ends)
        pairs = [
            check_pair(wanted, name, client, server)
            for client, (_, names) in zip(clients, ends[:-1], strict=True)
            for name in names
        ]
        for ike, _ in pairs:
            hold_group(self._ends[0].daemon.place, self.params.ike_group, ike.suite)
        return pairs

    def _paths(self, site: Site, mtu_bytes: int) -> tuple[TrafficPath, ...]:
        paths = []
        for number in range(self.params.paths):
            client, server = self._inner(site, "client", number)
            paths.append(
                TrafficPath(
                    name=str(number),
                    client_address=client,
                    server_address=server,
                    client_interface=self._interface(site, "client", number),
                    server_interface=self._interface(site, "server", number),
                    mtu_bytes=mtu_bytes,
                    link_address=client if self._mode == "transport" else None,
                    client=site.clients[number] if site.clients else None,
                )
            )
        return tuple(paths)


def child_name(number: int) -> str:
    """Return what the associations of a tunnel are called in the daemons."""
    return f"esp{number}"
