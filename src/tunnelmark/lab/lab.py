"""Two isolated hosts joined by a link: made, watched and removed.

Three namespaces: client and server with one interface each, and the link between them, in which the
engine's emulator carries frames from one to the other. A quiet link carries nothing: neighbours
are permanent and address detection is off. There is no route to anything else.
"""

import json
import signal
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tunnelmark.engine.events import Event
from tunnelmark.engine.link import AnyLinkSpec, SharedLinkSpec
from tunnelmark.engine.pump import EventPump
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.ip import ip_batch
from tunnelmark.lab.place import LabProcess, LocalPlace, Place
from tunnelmark.lab.router import set_up
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.host import Process
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
    inner_ipv4,
    inner_ipv6,
)
from tunnelmark.model.tunnel import Endpoint, Medium, SharedMedium, Site

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
_READY_LIMIT_S: Final = 10.0
_REALTIME_PRIORITY: Final = 20
_ETHERNET_HEADER_BYTES: Final = 14
_MOST_REPORTS: Final = 2 * 3600
"""Reports of the emulator that are kept: an hour of them, and those that were asked for."""


@dataclass(frozen=True)
class LinkCounters:
    """Counters of both directions of the emulator, as ``docs/engine.md`` names them."""

    forward: Mapping[str, Any]
    reverse: Mapping[str, Any]
    header_bytes: int = _ETHERNET_HEADER_BYTES
    """What they count in each frame that is no part of the wire rate."""


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
    ) -> None:
        """Bring it up; without a ``link``, or not ``emulate``, the two hosts are joined directly.

        Then ``offloads`` may stay on: what the kernel cuts and joins is nobody's frames.

        A tunnel that is the link itself (``Tunnel.is_link``) makes it from ``site.shared``; what it
        made is handed in by ``adopt``.

        ``place`` is where it stands, namespaces of this computer if none is given; ``engine`` and
        ``logs`` are for that. Raises ``LabError`` with the last words of what failed; what was made
        until then is removed.
        """
        self.logs = logs
        self.place: Place = place or LocalPlace(ledger, engine=engine, logs=logs)
        self._topology = topology
        self.link = link
        self._emulator: LabProcess | None = None
        self._has_schedule = False
        self._adopted: Medium | None = None
        self._events = EventPump()
        self._reports: deque[tuple[int, LinkCounters]] = deque(maxlen=_MOST_REPORTS)
        emulate = emulate and link is not None
        behind = topology.router != "none"
        joined = self.place.make(
            mtu_bytes=topology.mtu_bytes,
            through_link=emulate,
            router=behind,
            offloads=offloads and not emulate,
        )
        self.client_host, self.server_host = joined.client, joined.server
        self.link_host = joined.link
        self.run_id = ledger.run_id
        made = (self.client_host, self.server_host, self.link_host, joined.router)
        self._hosts = tuple(host for host in made if host is not None)
        self.client = Endpoint(
            self.client_host, CLIENT_IPV4, CLIENT_IPV6, "eth0", topology.mtu_bytes
        )
        server = (
            (OUTSIDE_SERVER_IPV4, OUTSIDE_SERVER_IPV6) if behind else (SERVER_IPV4, SERVER_IPV6)
        )
        self.server = Endpoint(self.server_host, *server, "eth0", topology.mtu_bytes)
        try:
            if joined.router is None:
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
                set_up(joined.router, neighbours=neighbours, nat=topology.router == "nat")
            if link is not None and emulate:
                self._start_emulator(link)
        except BaseException:
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
            inner_ipv4,
            inner_ipv6,
            engine=self.place.engine,
            owner_pid=self.place.owner_pid,
            nat_ipv4=OUTSIDE_ROUTER_IPV4 if self._topology.router == "nat" else None,
            shared=SharedMedium(link.medium, link.seed)
            if isinstance(link, SharedLinkSpec)
            else None,
        )

    @property
    def emulator(self) -> Process | None:
        """The link emulator, None where the hosts are joined directly."""
        return self._emulator if self._adopted is None else self._adopted.process

    @property
    def direct(self) -> bool:
        """Whether nothing stands between the two hosts."""
        return self._emulator is None and self._adopted is None

    def adopt(self, medium: Medium | None) -> None:
        """Take what a tunnel brought as the link; whoever started it ends it."""
        self._adopted = medium

    def counters(self) -> LinkCounters | None:
        """Return the emulator's counters now; None without an emulator or if it does not answer."""
        if self._adopted is not None:
            both = self._adopted.counters()
            return None if both is None else LinkCounters(*both, self._adopted.header_bytes)
        if self._emulator is None or self._emulator.poll() is not None:
            return None
        emulator = self._emulator
        event = self._events.ask(lambda: emulator.signal(signal.SIGUSR1))
        return None if event is None else LinkCounters(event["a_to_b"], event["b_to_a"])

    def _note(self, event: Event) -> None:
        if not isinstance(event.get("a_to_b"), dict) or not isinstance(event.get("b_to_a"), dict):
            return
        counters = LinkCounters(event["a_to_b"], event["b_to_a"])
        self._reports.append((time.monotonic_ns(), counters))

    def reports(self, since_ns: int) -> list[tuple[int, LinkCounters]]:
        """Return what the emulator told by itself, every second, since a time (monotonic).

        Each with the time at which it came. Empty where another program is the link.
        """
        return [report for report in list(self._reports) if report[0] >= since_ns]

    def restart_schedule(self) -> None:
        """Let changes and traces of the link begin anew, as at the start of every trial."""
        if self._emulator is not None and self._has_schedule:
            self._emulator.signal(signal.SIGUSR2)

    def problem(self) -> str | None:
        """Return what is wrong with the link, or None."""
        if self._adopted is not None:
            return self._adopted.problem()
        if self._emulator is None:
            return None
        if (status := self._emulator.poll()) is not None:
            words = self._events.error or self._emulator.log_tail(1) or f"exit status {status}"
            return f"the link emulator ended: {words}"
        return None

    def down(self) -> None:
        """End every process and remove the namespaces; tolerates being called twice."""
        if self._emulator is not None:
            self._emulator.stop()
        for host in self._hosts:
            host.stop_all()
        for host in self._hosts:
            host.remove()

    def _address(
        self, own: Endpoint, next_hop: tuple[str, str], at: str, beyond: Endpoint | None = None
    ) -> None:
        """Address an end whose neighbour on its wire is ``at``, with the other end ``beyond``."""
        host, interface = own.host, own.interface
        role = "client" if own is self.client else "server"
        # A kernel without IPv6 has no IPv6 settings, and needs none (-e).
        host.run(["sysctl", "-eqw", *_SYSCTLS], check=False)
        if (memory := self._topology.reassembly_bytes) is not None:
            # The kernel takes no upper limit below the lower one, which means nothing since 4.17.
            lower = [f"{name}_low_thresh=0" for name in _REASSEMBLY]
            upper = [f"{name}_high_thresh={memory}" for name in _REASSEMBLY]
            host.run(["sysctl", "-eqw", *lower, *upper])
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

    def _start_emulator(self, link: AnyLinkSpec) -> None:
        files_dir = self.link_host.work_dir
        for name, content in link.files.items():
            self.link_host.put(files_dir / name, content)
        config = link.to_json(
            a="a",
            b="b",
            parent_pid=self.place.link_owner_pid,
            realtime_priority=_REALTIME_PRIORITY,
            files_dir=str(files_dir),
        )
        self._has_schedule = link.has_schedule
        self._emulator = self.link_host.spawn(
            [self.place.link_engine, "link", "-"],
            name="link-emulator",
            stdin=json.dumps(config).encode(),
            lines=True,
        )
        self._events.start(self._emulator, self._note)
        if not self._events.ready.wait(_READY_LIMIT_S) or self._events.error:
            words = self._events.error or self._emulator.log_tail(1) or "no event"
            raise LabFailedError(f"the link emulator is not ready: {words}")
