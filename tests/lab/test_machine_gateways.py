"""Gateways that need a full kernel, with three clients in the machine: traffic, wire, overhead."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from places import Places, driven, interfaces
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.lab.session.proving import proofs_after
from tunnelmark.lab.session.warm import warm_up
from tunnelmark.model.block import ProofVerdict
from tunnelmark.model.overhead import IP_VERSIONS, datagram
from tunnelmark.model.topology import Topology

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

CLIENTS = 3
WAY = Direction(rate_bit_s=50_000_000, delay_ns=2_000_000, queue=Queue("packets", 200))
LINK = LinkSpec(WAY, WAY, seed=1)
PAYLOAD_BYTES = 500
KERNEL = {"implementation": "kernel"}
# What runs at the server, and interfaces that it has for its clients.
VARIANTS: list[tuple[str, dict[str, object], list[str], int]] = [
    ("wireguard", {**KERNEL, "psk": True}, [], 1),
    ("ipsec", {**KERNEL, "auth": "cert"}, ["charon"], 1),
    ("ipsec", {**KERNEL, "inner": "ipv6", "outer": "ipv6"}, ["charon"], 1),
    ("ipsec", {**KERNEL, "mode": "transport", "ike": "v1"}, ["charon"], 0),
    ("ikev2", KERNEL, ["charon"], 1),
    ("pptp", {}, ["pptpd"], 3),
    ("sstp", {}, ["sstp"], 3),
    ("l2tp_ipsec", {}, ["charon", "xl2tpd"], 3),
]


def name_of(variant: Any) -> str:
    kind, params = variant[:2]
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def stand(stack: ExitStack, places: Places, *, shared: bool = False) -> Lab:
    topology = Topology(clients=CLIENTS, shared=shared)
    return places.lab(stack, places.machine(), LINK, topology=topology)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_one_server_serves_every_client_and_the_wires_show_nothing_else(
    variant: tuple[str, dict[str, object], list[str], int], stack: ExitStack, places: Places
) -> None:
    kind, params, programs, at_server = variant
    tunnel = driven(kind, {**params, "clients": CLIENTS})
    lab = stand(stack, places, shared=tunnel.params.shared)
    stack.callback(tunnel.down)
    up = tunnel.up(lab.site)
    assert [path.name for path in up.paths] == ["0", "1", "2"]
    assert len({path.client_address for path in up.paths}) == CLIENTS
    assert len({path.server_address for path in up.paths}) == 1
    assert len(up.negotiated) == CLIENTS
    living = [process.name for process in lab.server_host.spawned if process.poll() is None]
    assert [name.partition("-")[0] for name in living] == programs
    wires = {f"eth{number}" for number in range(lab.wires)}
    assert len(interfaces(lab.server_host) - wires - {"lo"}) == at_server
    before = lab.counters()
    # Raises unless packets of every client come back.
    warm_up(up, lab, seed=1)
    (check,) = foreign_check(before, lab.counters(), [up.wire])
    assert check.ok, check.message
    proofs = list(proofs_after(lab, up, seed=lambda _name: 1, keep=lambda _name, _pcap: None))
    # Of the first client and of the last.
    assert len(proofs) == 2
    for proof, agreed in zip(proofs, up.negotiated[:: CLIENTS - 1], strict=True):
        assert proof.verdict is ProofVerdict.PROVED, proof.message
        model = tunnel.encapsulation(agreed)
        seen = {one.payload_bytes: one.overhead_bytes for one in proof.samples}
        wanted = datagram(
            PAYLOAD_BYTES,
            link_mtu_bytes=1500,
            encapsulation=model,
            inner_ip=IP_VERSIONS[tunnel.params.inner],
        )
        assert seen[PAYLOAD_BYTES] == wanted.overhead_bytes
    tunnel.check_agreed()
    assert tunnel.problem() is None
    tunnel.down()
    assert interfaces(lab.server_host) == {"lo", *wires}
    for host in (*lab.client_hosts, lab.server_host):
        assert [process.name for process in host.spawned if process.poll() is None] == []
        for what in ("state", "policy"):
            assert host.run(["ip", "xfrm", what]).text() == ""
        addresses = host.run(["ip", "-4", "-o", "address", "show", "dev", "eth0"]).text()
        assert len(addresses.splitlines()) == 1
    assert all(interfaces(host) == {"lo", "eth0"} for host in lab.client_hosts)
