"""No tunnel: the baseline. Traffic goes straight over the link, readable."""

from typing import ClassVar, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import LEAST_IPV6_MTU_BYTES
from tunnelmark.model.tunnel import (
    DataPath,
    Endpoint,
    Negotiated,
    ServerPorts,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.protocols import UDP
from tunnelmark.tunnels.support import Watched, first_packet, first_problem

_FIRST_PACKET_LIMIT_S = 15.0


class NoneParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field(
        "ipv4", description="has no effect: without a tunnel there is no outer packet"
    )

    def columns(self) -> dict[str, object]:
        """Return the columns without that of an outer packet, which is not there."""
        return {name: value for name, value in super().columns().items() if name != "outer"}


class NoneTunnel(Tunnel):
    """The reference point of every block; ``count`` paths are as many flows over the same link.

    With ``clients`` each has a link, as the clients of a gateway have.
    """

    kind: ClassVar[str] = "none"
    title: ClassVar[str] = "no tunnel"
    params_type: ClassVar[type[TunnelParams]] = NoneParams
    gateway: ClassVar[bool] = True

    def __init__(self, params: TunnelParams) -> None:
        """Take the number of paths."""
        super().__init__(params)
        self._ends: tuple[Watched, ...] = ()

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need nothing but the programs that look at interfaces and send a first packet."""
        return Need(programs={"ip": "iproute2", "ping": "iputils-ping"})

    def bring_up(self, site: Site) -> TunnelUp:
        """Check that the link carries a packet both ways."""
        client, server = site.client, site.server
        mtu_bytes = min(client.mtu_bytes, server.mtu_bytes)
        ip = self.params.inner
        ipv6 = ip == "ipv6"
        if ipv6 and mtu_bytes < LEAST_IPV6_MTU_BYTES:
            raise RefusedError(
                f"inner is ipv6 and the link's MTU {mtu_bytes} bytes, IPv6 needs at least "
                f"{LEAST_IPV6_MTU_BYTES}"
            )
        paths = tuple(
            TrafficPath(
                name=str(number),
                client_address=end.own(ip),
                server_address=server.advertised(ip),
                client_interface=end.interface,
                server_interface=end.wire or server.interface,
                mtu_bytes=mtu_bytes,
                client=end if site.clients else None,
                server_own=server.own(ip) if server.reached else None,
                client_reached=end.reached,
            )
            for number in range(self.params.paths)
            for end in (site.client_of(number),)
        )
        # A NAT before the server would answer in its place; the proof by wire is by UDP.
        for number in range(len(site.clients) or 1) if server.reached is None else ():
            self._prove(site.client_of(number), paths[number])
        self._ends = tuple(
            Watched(end.host, end.interface, None, lambda process: process.log_tail())
            for end in (*(site.clients or (client,)), server)
        )
        kernel = client.host.run(["uname", "-sr"]).text().strip()
        agreed = Negotiated(
            cipher=None,
            version=kernel,
            implementation="kernel",
            mtu_bytes=mtu_bytes,
            data_path=DataPath.KERNEL,
        )
        return TunnelUp(
            paths=paths,
            negotiated=(agreed,) * self.params.paths,
            wire=WireRule(
                encrypted=False,
                describe=f"UDP over {'IPv6' if ipv6 else 'IPv4'}, readable",
                ip_protocols=(UDP,),
                ip_version=6 if ipv6 else 4,
            ),
        )

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return nothing of its own: what measures says itself which ports it needs."""
        return ()

    def _prove(self, client: Endpoint, path: TrafficPath) -> None:
        if words := first_packet(client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
            raise TunnelError(
                f"no echo over the bare link from {path.client_address} to {path.server_address} "
                f"within {_FIRST_PACKET_LIMIT_S:g} s: {words}"
            )

    def problem(self) -> str | None:
        """Return whether an end of the link vanished or went down."""
        return first_problem(self._ends)

    def down(self) -> None:
        """Nothing was made, so nothing is removed."""
        self._ends = ()

    def encapsulation(self, agreed: Negotiated) -> None:
        """Return that datagrams go as they are."""
