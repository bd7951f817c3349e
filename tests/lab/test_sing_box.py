"""sing-box on the link: what each of its protocols costs a datagram, and that all is encrypted."""

from collections.abc import Iterator

import pytest

from places import driven
from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.link import Direction, LinkSpec, Loss, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.topology import Topology
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber
from tunnelmark.probes.wire import Watch, prove

# The proof paces its packets; a busy computer brings them together.
pytestmark = [pytest.mark.lab, pytest.mark.paced]

DIRECTION = Direction(
    rate_bit_s=100_000_000, delay_ns=5_000_000, queue=Queue("bytes", 1 << 20), loss=Loss()
)
SIZES = (100, 1000, 1472)
# IP bytes beyond the payload of one datagram, of packets that carry it whole: IP and TCP or UDP
# headers, TLS record or QUIC packet, and the address that names the far end. None: AnyTLS, which
# the attribution of packets to datagrams does not find; QUIC adds acknowledgements as it likes.
COSTS: list[tuple[str, int | None]] = [
    ("vless", 90),
    ("trojan", 85),
    ("shadowsocks", 78),
    ("anytls", None),
    ("hysteria2", 77),
    ("tuic", 71),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    spec = LinkSpec(DIRECTION, DIRECTION, seed=1)
    with Ledger() as ledger, Lab(ledger, Topology(), spec, engine=find_engine()) as lab:
        yield lab


@pytest.mark.parametrize(("protocol", "cost"), COSTS)
def test_every_protocol_encrypts_and_carries_datagrams_at_a_known_cost(
    lab: Lab, protocol: str, cost: int | None
) -> None:
    tunnel = driven("sing_box", {"protocol": protocol})
    if reason := tunnel.unavailable(lab.client_host):
        pytest.skip(reason)
    try:
        up = tunnel.up(lab.site)
        prober = EngineProber(
            up.paths[0],
            client=lab.client_host,
            server=lab.server_host,
            engine=find_engine(),
            seed=5,
            spacing_ns=PROBE_SPACING_NS * 4,
            stream=bool(up.wire.tcp_ports),
        )
        watch = Watch(lab.link_host, "a", lab.client)
        proof = prove(up.paths[0], up.wire, prober=prober, watch=watch, payload_sizes=SIZES, seed=7)
        assert tunnel.problem() is None
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    assert proof.marker_seen is False
    assert proof.foreign_packets == 0
    if cost is not None:
        seen = {one.payload_bytes: one.outer_packet_bytes for one in proof.samples}
        assert 1000 + cost in seen[1000]
