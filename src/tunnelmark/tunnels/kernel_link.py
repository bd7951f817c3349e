"""What the tunnels share that are nothing but an interface of the kernel: no daemon, no handshake.

Each end is made as the study says and then read back: what the kernel shows of an interface is what
was agreed, since nobody negotiates.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.tunnel import (
    Endpoint,
    Negotiated,
    Side,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import alone, check_inner_mtu, inner_addresses, no_dad
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.support import (
    Watched,
    first_packet,
    first_problem,
    inner_interface,
    interfaces,
    quieten,
)

_FIRST_PACKET_LIMIT_S: Final = 15.0


class KernelLinkParams(TunnelParams):
    """What a study can set of all of them."""

    mtu_bytes: int | None = Field(
        None,
        ge=68,
        le=65535,
        description="MTU of the inner interface; default: what the link leaves",
    )


@dataclass(frozen=True)
class LinkEnd:
    """One end of one tunnel, before it is made."""

    side: Side
    number: int
    own: Endpoint
    peer: Endpoint
    interface: str
    mtu_bytes: int
    nat_ipv4: str | None = None
    """What the server sees in place of the client's IPv4 address."""

    def outer(self, params: TunnelParams) -> tuple[str, str]:
        """Return (own, peer) address on the link."""
        if params.outer == "ipv4":
            seen = self.nat_ipv4 if self.side == "server" else None
            return self.own.ipv4, seen or self.peer.ipv4
        return self.own.ipv6, self.peer.ipv6


class KernelLinkTunnel(Tunnel):
    """``count`` pairs of interfaces."""

    params: KernelLinkParams

    feature: ClassVar[str]
    """Kernel feature by the name of ``Host.has_kernel``."""
    letter: ClassVar[str]
    """In the names of its interfaces."""
    ethernet: ClassVar[bool]
    """Whether frames go inside, and so the peer's Ethernet address must be known."""

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._made: list[LinkEnd] = []

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need ip(8) and the kernel's feature."""
        programs = {"ip": "iproute2", "ping": "iputils-ping"}
        return Need(programs=programs, kernel=(self.feature,))

    @property
    @abstractmethod
    def overhead_bytes(self) -> int:
        """Bytes behind the link's Ethernet header that every packet costs."""

    @abstractmethod
    def make(self, end: LinkEnd) -> None:
        """Make the interface, down and without addresses."""

    @abstractmethod
    def wanted(self, end: LinkEnd) -> Mapping[str, object]:
        """Return what ``ip -d -j link show`` must say of it, as keys of its ``info_data``."""

    @abstractmethod
    def wire(self) -> WireRule:
        """Return how every packet on the link must look."""

    @abstractmethod
    def agreed(self, kernel: str, mtu_bytes: int) -> Negotiated:
        """Return what was agreed; ``kernel`` is its name and version."""

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:  # noqa: ARG002 - only the kernel's
        """Return what the link leaves: the kernel does not fragment outside."""
        return link_mtu_bytes - self.overhead_bytes

    def bring_up(self, site: Site) -> TunnelUp:
        """Make both ends of each, read them back, send a packet through."""
        paths = []
        for number in range(self.params.count):
            ends = [self._end(site, side, number) for side in ("client", "server")]
            for end in ends:
                self._made.append(end)
                self.make(end)
            # An interface may get its Ethernet address only when it is made.
            for end, other in zip(ends, reversed(ends), strict=True):
                self._configure(site, end, other)
            for end in ends:
                self._check(end)
            path = self._path(site, ends[0], ends[1])
            if words := first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
                raise TunnelError(
                    f"no echo through {self.kind} tunnel {number} within "
                    f"{_FIRST_PACKET_LIMIT_S:g} s: {words}"
                )
            paths.append(path)
        kernel = site.client.host.run(["uname", "-sr"]).text().strip()
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(self.agreed(kernel, path.mtu_bytes) for path in paths),
            wire=self.wire(),
        )

    def problem(self) -> str | None:
        """Return which interface vanished or went down."""
        return first_problem(
            [
                Watched(end.own.host, end.interface, None, lambda process: process.log_tail())
                for end in self._made
            ]
        )

    def down(self) -> None:
        """Delete the interfaces."""
        while self._made:
            end = self._made.pop()
            # It may be gone already, or was never made: no failure here.
            end.own.host.run(["ip", "link", "delete", "dev", end.interface], check=False)

    def _end(self, site: Site, side: Side, number: int) -> LinkEnd:
        own, peer = site.client, site.server
        if side == "server":
            own, peer = peer, own
        link = min(own.mtu_bytes, peer.mtu_bytes)
        room = self.default_mtu_bytes(link, "kernel")
        mtu = room if self.params.mtu_bytes is None else self.params.mtu_bytes
        if mtu > room:
            raise RefusedError(
                f"{self.kind}: mtu_bytes is {mtu}, a link of {link} bytes leaves {room}, and the "
                "kernel does not fragment outside"
            )
        check_inner_mtu(self.kind, self.params.inner, mtu)
        interface = inner_interface(site, self.letter, number, side)
        return LinkEnd(side, number, own, peer, interface, mtu, site.nat_ipv4)

    def _configure(self, site: Site, end: LinkEnd, other: LinkEnd) -> None:
        host, device = end.own.host, end.interface
        addresses = inner_addresses(site, end.number, self.params)
        own, peer = addresses if end.side == "client" else addresses[::-1]
        quieten(host, device)
        host.run(["ip", "link", "set", "dev", device, "mtu", str(end.mtu_bytes), "up"])
        # Not before: of an interface that is down, IPv6 forgets the route to the peer.
        inner = ["ip", "address", "add", own, "peer", alone(peer), "dev", device]
        host.run([*inner, *no_dad(own)])
        if self.ethernet:
            # Nothing but the workload is to go over the link: no ARP.
            address = self._shown(other).get("address")
            host.run(
                [
                    *("ip", "neighbour", "replace", peer, "lladdr", str(address)),
                    *("dev", device, "nud", "permanent"),
                ]
            )

    def _check(self, end: LinkEnd) -> None:
        shown = self._shown(end)
        linkinfo = shown.get("linkinfo")
        data = linkinfo.get("info_data") if isinstance(linkinfo, dict) else None
        if not isinstance(data, dict):
            raise TunnelError(f"{self._place(end)}: the kernel shows nothing of {end.interface}")
        data = {**data, "mtu": shown.get("mtu")}
        for what, want in {**self.wanted(end), "mtu": end.mtu_bytes}.items():
            if data.get(what) != want:
                raise RefusedError(
                    f"{self._place(end)}: the kernel shows {what} {data.get(what)!r}, "
                    f"the study asks for {want!r}"
                )

    def _shown(self, end: LinkEnd) -> dict[str, Any]:
        done = end.own.host.run(["ip", "-d", "-j", "link", "show", "dev", end.interface])
        try:
            entries = json.loads(done.stdout)
        except ValueError as error:
            raise TunnelError(f"{self._place(end)}: ip link wrote no JSON: {error}") from error
        found = entries[0] if isinstance(entries, list) and entries else None
        return found if isinstance(found, dict) else {}

    def _place(self, end: LinkEnd) -> str:
        return f"{self.kind} {end.side} of tunnel {end.number} on {end.own.host.name}"

    def _path(self, site: Site, client: LinkEnd, server: LinkEnd) -> TrafficPath:
        client_address, server_address = inner_addresses(site, client.number, self.params)
        state = interfaces(client.own.host).get(client.interface)
        return TrafficPath(
            name=str(client.number),
            client_address=client_address,
            server_address=server_address,
            client_interface=client.interface,
            server_interface=server.interface,
            mtu_bytes=state.mtu_bytes if state else client.mtu_bytes,
        )
