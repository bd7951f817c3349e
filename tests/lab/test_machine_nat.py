"""What needs help passes the NAT of a lab, in the machine: packets, proof and sizes."""

from contextlib import ExitStack

import pytest

from places import Places
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.model.registry import make
from tunnelmark.model.topology import OUTSIDE_ROUTER_IPV4, Topology
from tunnelmark.model.trial import DriverSpec
from tunnelmark.probes.prober import EngineProber
from tunnelmark.probes.wire import Watch, prove
from tunnelmark.tunnels.registry import tunnel_kinds

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

_DIRECTION = Direction(rate_bit_s=100_000_000, delay_ns=5_000_000, queue=Queue("bytes", 1 << 20))
_SPACING_NS = 20_000_000


@pytest.mark.parametrize(
    ("kind", "params", "outer_bytes"),
    [
        ("gre", {}, 1052),
        ("pptp", {}, 1065),
        ("l2tp_ipsec", {"udp_encapsulation": True}, 1120),
        ("l2tp_ipsec", {"ipsec": False}, 1066),
    ],
)
def test_what_nat_hides_comes_back_through_it(
    places: Places, kind: str, params: dict[str, object], outer_bytes: int
) -> None:
    tunnel = make(tunnel_kinds(), DriverSpec(kind, kind, params))
    with ExitStack() as stack:
        link = LinkSpec(_DIRECTION, _DIRECTION, seed=1)
        topology = Topology(router="nat")
        lab = places.lab(stack, places.machine(), link, topology=topology)
        assert lab.site.nat_ipv4 == OUTSIDE_ROUTER_IPV4
        stack.callback(tunnel.down)
        up = tunnel.up(lab.site)
        path = up.paths[0]
        prober = EngineProber(
            path,
            client=lab.client_host,
            server=lab.server_host,
            engine=lab.place.engine,
            seed=5,
            spacing_ns=_SPACING_NS,
        )
        watch = Watch(lab.link_host, "a", lab.client)
        sizes = (100, 1000)
        proof = prove(path, up.wire, prober=prober, watch=watch, payload_sizes=sizes, seed=7)
        assert proof.ok, proof.message
        seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in proof.samples}
        assert seen[1000] == (outer_bytes,)
