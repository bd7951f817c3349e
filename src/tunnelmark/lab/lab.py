"""Two isolated hosts joined by a link: made, watched and removed.

At least three namespaces: client and server with one interface each, and the link between them, in
which the engine's emulator carries frames from one to the other. A router or the clients of a
gateway have namespaces of their own. A quiet link carries nothing: neighbours are permanent and
address detection is off. There is no route to anything else.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from tunnelmark.engine.link import AnyLinkSpec, SharedLinkSpec
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.undoing import do_all
from tunnelmark.lab.emulators import Emulators, LinkCounters, Reports
from tunnelmark.lab.gateway import address_clients
from tunnelmark.lab.ip import ip_batch
from tunnelmark.lab.place import Joined, LineAddress, LocalPlace, OnLine, Place
from tunnelmark.lab.router import set_up
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.together import together
from tunnelmark.model.topology import (
    CLIENT_IPV4,
    CLIENT_IPV6,
    LINK_PREFIX_IPV4,
    LINK_PREFIX_IPV6,
    MACS,
    OUTSIDE_ROUTER_IPV4,
    OUTSIDE_ROUTER_IPV6,
    OUTSIDE_SERVER_IPV4,
    OUTSIDE_SERVER_IPV6,
    ROUTER_IPV4,
    ROUTER_IPV6,
    SERVER_IPV4,
    SERVER_IPV6,
    Topology,
    gateway_ipv4,
    gateway_ipv6,
    inner_ipv4,
    inner_ipv6,
)
from tunnelmark.model.tunnel import Endpoint, Medium, SharedMedium, Side, Site

_SYSCTLS: Final = (
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.ip_forward=0",
    # "default" is for interfaces to come (the tunnels'), "eth0" was there before.
    *(
        f"net.ipv6.conf.{interface}.{setting}"
        for interface in ("default", "eth0")
        for setting in ("accept_dad=0", "accept_ra=0", "router_solicitations=0", "addr_gen_mode=1")
    ),
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.all.accept_ra=0",
)
_REASSEMBLY: Final = ("net.ipv4.ipfrag", "net.ipv6.ip6frag")


class Lab:
    """A lab that is up. Use ``with Lab(…) as lab``; leaving removes it."""

    def __init__(
        self,
        ledger: Ledger,
        topology: Topology,
        link: AnyLinkSpec | None,
        *,
        engine: str,
        logs: Path | None = None,
        place: Place | None = None,
        emulate: bool = True,
        offloads: bool = False,
        spin: bool = True,
    ) -> None:
        """Bring it up; without a ``link``, or not ``emulate``, the two hosts are joined directly.

        Then ``offloads`` may stay on: what the kernel cuts and joins is nobody's frames. With
        ``spin``, what waits for a packet's time is awake for the last stretch.

        A tunnel that is the link itself (``Tunnel.is_link``) makes it from ``site.shared``; what it
        made is handed in by ``adopt``.

        ``place`` is where it stands, namespaces of this computer if none is given; ``engine`` and
        ``logs`` are for that. Raises ``LabError`` with the last words of what failed; what was made
        until then is removed.
        """
        self.logs = logs
        self.place: Place = place or LocalPlace(ledger, engine=engine, logs=logs)
        self._topology = topology
        self.spin = spin
        self.link = link
        self._emulators: Emulators | None = None
        self._adopted: Medium | None = None
        self._nat_helpers: frozenset[str] = frozenset()
        emulate = emulate and link is not None
        joined = self._made(through_link=emulate, offloads=offloads and not emulate)
        self.client_host, self.server_host = joined.client, joined.server
        self.link_host = joined.link
        self.run_id = ledger.run_id
        made = (
            *(self.client_host, *joined.more_clients),
            *(self.server_host, self.link_host, joined.router),
        )
        self._hosts = tuple(host for host in made if host is not None)
        client = CLIENT_IPV4, CLIENT_IPV6
        server = (
            (OUTSIDE_SERVER_IPV4, OUTSIDE_SERVER_IPV6)
            if topology.behind_router
            else (SERVER_IPV4, SERVER_IPV6)
        )
        if (on_line := joined.on_line) is not None:
            # The line has one IP version: what would use the other is refused before.
            client, server = _at(on_line.client, client), _at(on_line.server, server)
        mtu_bytes = topology.mtu_bytes
        self.client = Endpoint(
            self.client_host, *client, "eth0", mtu_bytes, reached=_reached(on_line, "client")
        )
        self.server = Endpoint(
            self.server_host, *server, "eth0", mtu_bytes, reached=_reached(on_line, "server")
        )
        self.clients: tuple[Endpoint, ...] = (self.client,)
        """Of a gateway, all of them; else the one."""
        self.client_hosts = (self.client_host, *joined.more_clients)
        try:
            if on_line is not None:
                together(lambda: self._set(self.client_host), lambda: self._set(self.server_host))
            elif joined.router is None:
                here, there = self.client, self.server
                together(
                    lambda: self._address(here, (there.ipv4, there.ipv6), "server"),
                    lambda: self._address(there, (here.ipv4, here.ipv6), "client"),
                )
            else:
                self._address(self.client, (ROUTER_IPV4, ROUTER_IPV6), "router", self.server)
                outside = (OUTSIDE_ROUTER_IPV4, OUTSIDE_ROUTER_IPV6)
                self._address(self.server, outside, "outside", self.client)
                neighbours = {
                    "eth0": dict.fromkeys((CLIENT_IPV4, CLIENT_IPV6), MACS["client"]),
                    "eth1": dict.fromkeys(server, MACS["server"]),
                }
                nat = topology.router == "nat"
                self._nat_helpers = set_up(joined.router, neighbours=neighbours, nat=nat)
            if joined.more_clients:
                self.clients += address_clients(
                    joined,
                    self.server,
                    topology.mtu_bytes,
                    sysctls=self._set,
                    shared=topology.shared,
                )
            if link is not None and emulate:
                self._emulators = Emulators(
                    self.link_host,
                    link,
                    engine=self.place.link_engine,
                    parent_pid=self.place.link_owner_pid,
                    spin=spin,
                )
                self._emulators.start(self.wires)
        except BaseException:
            with suppress(Exception):  # why it did not come up matters more
                self.down()
            raise

    def __enter__(self) -> Self:
        """Return the lab."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.down()

    @property
    def site(self) -> Site:
        """What a tunnel driver is handed."""
        link = self.link
        return Site(
            self.client,
            self.server,
            self.run_id,
            gateway_ipv4 if self.is_gateway else inner_ipv4,
            gateway_ipv6 if self.is_gateway else inner_ipv6,
            engine=self.place.engine,
            owner_pid=self.place.owner_pid,
            spin=self.spin,
            nat_ipv4=OUTSIDE_ROUTER_IPV4 if self._topology.router == "nat" else None,
            nat_helpers=self._nat_helpers,
            shared=SharedMedium(link.medium, link.seed)
            if isinstance(link, SharedLinkSpec)
            else None,
            clients=self.clients if self.is_gateway else (),
        )

    @property
    def is_gateway(self) -> bool:
        """Whether the server is one gateway, of one client or of several."""
        return self._topology.clients is not None

    @property
    def wires(self) -> int:
        """Number of links at the server: one for each client, or one that all share."""
        return 1 if self._topology.shared else len(self.clients)

    @property
    def emulators(self) -> tuple[Process, ...]:
        """The link emulators, one for each link; none where the hosts are joined directly."""
        if self._adopted is not None:
            return (self._adopted.process,)
        return () if self._emulators is None else self._emulators.processes

    @property
    def direct(self) -> bool:
        """Whether nothing stands between the hosts."""
        return self._emulators is None and self._adopted is None

    def adopt(self, medium: Medium | None) -> None:
        """Take what a tunnel brought as the link; whoever started it ends it."""
        self._adopted = medium

    def counters(self) -> LinkCounters | None:
        """Return the emulator's counters now; None without an emulator or if it does not answer."""
        if (medium := self._adopted) is not None:
            return _of_medium(medium, medium.counters())
        return None if self._emulators is None else self._emulators.counters()

    def begin(self) -> LinkCounters | None:
        """Let changes, traces and recent lateness of the link begin now; return its counters."""
        if (medium := self._adopted) is not None:
            return _of_medium(medium, medium.begin())
        return None if self._emulators is None else self._emulators.begin()

    def reports(self, since_ns: int) -> Reports:
        """Return the emulator's reports of every second, since a time (monotonic).

        Each with the time at which it came. Empty where another program is the link.
        """
        return [] if self._emulators is None else self._emulators.reports(since_ns)

    def problem(self) -> str | None:
        """Return what is wrong with the link, or None."""
        if self._adopted is not None:
            return self._adopted.problem()
        return None if self._emulators is None else self._emulators.problem()

    def down(self) -> None:
        """End every process and remove the namespaces; tolerates being called twice."""
        do_all(
            *(() if self._emulators is None else (self._emulators.stop,)),
            *(host.stop_all for host in self._hosts),
            *(host.remove for host in self._hosts),
        )

    def _made(self, *, through_link: bool, offloads: bool) -> Joined:
        topology = self._topology
        if topology.clients is not None and topology.behind_router:
            raise LabError("a gateway with clients cannot be behind a router")
        if topology.shared and not through_link:
            raise LabError("clients that share a link need one: these hosts are joined directly")
        return self.place.make(topology, through_link=through_link, offloads=offloads)

    def _address(
        self, own: Endpoint, next_hop: tuple[str, str], at: str, beyond: Endpoint | None = None
    ) -> None:
        """Address an end whose neighbour on its wire is ``at``, with the other end ``beyond``."""
        host, interface = own.host, own.interface
        role = "client" if own is self.client else "server"
        self._set(host)
        ipv4, ipv6 = next_hop
        lines = [
            f"link set {interface} address {MACS[role]}",
            f"link set {interface} arp on multicast off",
            f"address add {own.ipv4}/{LINK_PREFIX_IPV4} dev {interface}",
            f"link set {interface} up",
            f"neighbour replace {ipv4} lladdr {MACS[at]} dev {interface} nud permanent",
        ]
        lines_ipv6 = [
            f"address add {own.ipv6}/{LINK_PREFIX_IPV6} dev {interface} nodad",
            f"neighbour replace {ipv6} lladdr {MACS[at]} dev {interface} nud permanent",
        ]
        if beyond is not None:
            lines.append(f"route add {beyond.ipv4} via {ipv4} dev {interface}")
            lines_ipv6.append(f"route add {beyond.ipv6} via {ipv6} dev {interface}")
        ip_batch(host, lines)
        ip_batch(host, lines_ipv6, check=False)

    def _set(self, host: Host) -> None:
        """Set what the kernel of an end does with packets."""
        # A kernel without IPv6 has no IPv6 settings, and needs none (-e).
        host.run(["sysctl", "-eqw", *_SYSCTLS], check=False)
        if (memory := self._topology.reassembly_bytes) is not None:
            # The kernel takes no upper limit below the lower one, which means nothing since 4.17.
            lower = [f"{name}_low_thresh=0" for name in _REASSEMBLY]
            upper = [f"{name}_high_thresh={memory}" for name in _REASSEMBLY]
            host.run(["sysctl", "-eqw", *lower, *upper])


def _at(end: LineAddress, others: tuple[str, str]) -> tuple[str, str]:
    """Return (IPv4, IPv6) with an end's own address in the place of its version."""
    return (others[0], end.own) if ":" in end.own else (end.own, others[1])


def _of_medium(medium: Medium, event: Mapping[str, Any] | None) -> LinkCounters | None:
    return None if event is None else LinkCounters.of(event, medium.header_bytes)


def _reached(on_line: OnLine | None, side: Side) -> str | None:
    if on_line is None:
        return None
    return (on_line.client if side == "client" else on_line.server).reached
