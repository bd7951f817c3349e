"""No tunnel: the baseline. Traffic goes straight over the link, readable."""

from typing import ClassVar, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import LEAST_IPV6_MTU_BYTES
from tunnelmark.model.tunnel import DataPath, Negotiated, Site, TrafficPath, TunnelUp, WireRule
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.support import Watched, first_packet, first_problem

_FIRST_PACKET_LIMIT_S = 15.0
_UDP = 17


class NoneParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field(
        "ipv4", description="without a tunnel there is no packet around a packet: left as it is"
    )

    def columns(self) -> dict[str, object]:
        """Return the columns without that of an outer packet, which is not there."""
        return {name: value for name, value in super().columns().items() if name != "outer"}


class NoneTunnel(Tunnel):
    """The reference point of every block; ``count`` paths are as many flows over the same link."""

    kind: ClassVar[str] = "none"
    title: ClassVar[str] = "no tunnel"
    params_type: ClassVar[type[TunnelParams]] = NoneParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the number of paths."""
        super().__init__(params)
        self._ends: tuple[Watched, ...] = ()

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need nothing but the programs that look at interfaces and send a first packet."""
        return Need(programs={"ip": "iproute2", "ping": "iputils-ping"})

    def up(self, site: Site) -> TunnelUp:
        """Check that the link carries a packet both ways."""
        client, server = site.client, site.server
        mtu_bytes = min(client.mtu_bytes, server.mtu_bytes)
        ipv6 = self.params.inner == "ipv6"
        if ipv6 and mtu_bytes < LEAST_IPV6_MTU_BYTES:
            raise RefusedError(
                f"inner is ipv6 and the link's MTU {mtu_bytes} byte, IPv6 needs at least "
                f"{LEAST_IPV6_MTU_BYTES}"
            )
        ours, theirs = (client.ipv6, server.ipv6) if ipv6 else (client.ipv4, server.ipv4)
        paths = tuple(
            TrafficPath(
                name=str(number),
                client_address=ours,
                server_address=theirs,
                client_interface=client.interface,
                server_interface=server.interface,
                mtu_bytes=mtu_bytes,
            )
            for number in range(self.params.count)
        )
        if words := first_packet(client.host, paths[0], limit_s=_FIRST_PACKET_LIMIT_S):
            raise TunnelError(
                f"no echo over the bare link from {ours} to {theirs} "
                f"within {_FIRST_PACKET_LIMIT_S:g} s: {words}"
            )
        self._ends = tuple(
            Watched(end.host, end.interface, None, lambda process: process.log_tail())
            for end in (client, server)
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
            negotiated=(agreed,) * self.params.count,
            wire=WireRule(
                encrypted=False,
                describe=f"UDP over {'IPv6' if ipv6 else 'IPv4'}, readable",
                ip_protocols=(_UDP,),
                ip_version=6 if ipv6 else 4,
            ),
        )

    def problem(self) -> str | None:
        """Return whether an end of the link vanished or went down."""
        return first_problem(self._ends)

    def down(self) -> None:
        """Nothing was made, so nothing is removed."""
        self._ends = ()

    def encapsulation(self, agreed: Negotiated) -> None:
        """Return that datagrams go as they are."""
