"""A tunnel of which delay, loss, copies and CPU cost are known, because they were chosen."""

import itertools
import os
import random
from typing import Annotated, ClassVar

from pydantic import Field

from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, ip_layer, udp_layer
from tunnelmark.model.quantity import DurationNs, Ratio
from tunnelmark.model.tunnel import DataPath, Negotiated, Side, Site, TunnelUp, WireRule
from tunnelmark.tunnels.addressing import inner_addresses, outer_addresses, outer_version, with_port
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    last_complaint,
    prove_path,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.support import inner_interface

_UDP = 17
_PORT = 5900
_STARTS = itertools.count(1)


class KnownParams(TunnelParams):
    """What each end does to a packet on its way out."""

    delay: DurationNs = Field(0, description="time in the tunnel, each way")
    loss_forward: Ratio = Field(0.0, description="share lost towards the server")
    loss_reverse: Ratio = Field(0.0, description="share lost towards the client")
    copies: Annotated[int, Field(ge=1, le=4)] = Field(1, description="how often each leaves")
    packet_cost: DurationNs = Field(0, description="CPU time of each packet")
    byte_cost_ps: int = Field(0, ge=0, description="CPU time of each byte beside, in ps")
    unwrap_cost: DurationNs = Field(0, description="CPU time of each packet on its way in")
    scatter: Annotated[float, Field(ge=0, le=0.2)] = Field(
        0.0, description="standard deviation of the costs from start to start, as a share of them"
    )
    seed: int = Field(1, ge=1, description="of the losses")
    mtu_bytes: int = Field(1472, ge=576, le=1472, description="MTU of the inner interface")


class KnownTunnel(DaemonTunnel):
    """Two relays between a TUN device and UDP (crates/io/examples/known.rs)."""

    kind: ClassVar[str] = "known"
    title: ClassVar[str] = "known tunnel"
    params_type: ClassVar[type[TunnelParams]] = KnownParams
    params: KnownParams

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need a TUN device."""
        return Need(programs={"ip": "iproute2", "ping": "iputils-ping"}, kernel=("tun",))

    def bring_up(self, site: Site) -> TunnelUp:
        """Start both ends."""
        mtu = self.params.mtu_bytes
        ends = [self._start(site, side) for side in ("server", "client")]
        wait_for(ends, "start", lambda log: "ready" in log, limit_s=10.0)
        server, client = ends
        here, there = inner_addresses(site, 0, self.params)
        configure(server, here=there, there=here, mtu_bytes=mtu)
        configure(client, here=here, there=there, mtu_bytes=mtu)
        path = traffic_path(site, 0, client, server, params=self.params, mtu_bytes=mtu)
        prove_path(site, path, client, server)
        return TunnelUp(
            paths=(path,),
            negotiated=(Negotiated(None, "known 1", "known", mtu, data_path=DataPath.USER_SPACE),),
            wire=WireRule(
                encrypted=False,
                describe=f"UDP to or from port {_PORT}",
                ip_protocols=(_UDP,),
                udp_ports=(_PORT,),
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return IP and UDP around a packet, nothing else."""
        version = outer_version(self.params)
        layers = (ip_layer(version), udp_layer())
        return Encapsulation(lambda _inner: layers, agreed.mtu_bytes, outer_ip=version)

    def _start(self, site: Site, side: Side) -> Daemon:
        own, endpoint = self.params, site.client if side == "client" else site.server
        here, there = outer_addresses(site, own)[:: 1 if side == "client" else -1]
        interface = inner_interface(site, "k", 0, side)
        loss = own.loss_forward if side == "client" else own.loss_reverse
        # Each start loses others and costs something else, the same in each run.
        seed = own.seed * 1_000_003 + next(_STARTS)
        factor = random.Random(seed).gauss(1.0, own.scatter)  # noqa: S311 - no secret
        costs = (own.packet_cost, own.byte_cost_ps, own.unwrap_cost)
        settings = (own.delay, loss, own.copies, *(round(factor * cost) for cost in costs))
        process = endpoint.host.spawn(
            [
                os.environ["TUNNELMARK_KNOWN"],
                interface,
                with_port(here, _PORT),
                with_port(there, _PORT),
                ",".join(map(str, (*settings, seed))),
            ],
            name=unique_name(f"known-{side}"),
        )
        daemon = Daemon(f"known {side} of tunnel 0", endpoint, interface, process, last_complaint)
        self._daemons.insert(0, daemon)
        return daemon
