"""Tunnels that need a full kernel, in the machine: what the wire says, and what goes wrong."""

import dataclasses
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from places import Places, interfaces
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.lab.lab import Lab
from tunnelmark.model.block import WireProof
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.overhead import IP_VERSIONS, datagram
from tunnelmark.model.topology import OUTSIDE_ROUTER_IPV4, Topology
from tunnelmark.model.tunnel import Side, Site, TunnelUp
from tunnelmark.probes.prober import EngineProber
from tunnelmark.probes.wire import Watch, prove
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.l2tp_ipsec.driver import L2tpIpsecTunnel
from tunnelmark.tunnels.libreswan.driver import LibreswanTunnel
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.pptp import PptpTunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.tunnels.softether.program import SERVER
from tunnelmark.tunnels.sstp.driver import SstpTunnel

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

Params = dict[str, object]
FEW = (100, 1000)
AROUND_PADDING = (25, *range(96, 106), 1000, 1472, 2000)
SPACING_NS = 20_000_000
DIRECTION = Direction(rate_bit_s=100_000_000, delay_ns=5_000_000, queue=Queue("bytes", 1 << 20))

# Outer IP bytes of a payload of 1000, and the largest payload in one packet.
CASES: list[tuple[str, Params, int, int]] = [
    ("ipsec", {"mode": "transport", "suite": "3DES-SHA1"}, 1064, 1438),
    ("ipsec", {"mode": "transport", "suite": "NULL-SHA1"}, 1052, 1450),
    ("ipsec", {"mode": "transport", "suite": "AES-256-CBC-SHA256", "ike": "v1"}, 1084, 1430),
    ("ipsec", {"suite": "AES-256-GCM"}, 1084, 1418),
    ("ipsec", {"suite": "AES-128-CBC-SHA1", "auth": "cert"}, 1096, 1410),
    ("ipsec", {"suite": "CHACHA20-POLY1305", "udp_encapsulation": True}, 1092, 1410),
    ("ipsec", {"inner": "ipv6", "outer": "ipv6"}, 1124, 1378),
    ("ikev2", {"suite": "AES-128-GCM"}, 1084, 1418),
    ("libreswan", {"count": 2}, 1084, 1418),
    ("libreswan", {"suite": "AES-256-CBC-SHA256", "esn": True, "replay_window": 64}, 1100, 1410),
    ("libreswan", {"inner": "ipv6", "outer": "ipv6", "ike_group": "x25519"}, 1124, 1378),
    ("libreswan", {"suite": "NULL-SHA1"}, 1072, 1430),
    ("l2tp_ipsec", {}, 1112, 1372),
    ("l2tp_ipsec", {"ipsec": False}, 1066, 1372),
    ("l2tp_ipsec", {"inner": "ipv6"}, 1128, 1352),
    # 4 bytes more where an acknowledgement rides on a packet, which the proof tells apart.
    ("pptp", {}, 1065, 1372),
    ("pptp", {"mppe": "none", "inner": "ipv6"}, 1081, 1352),
    ("sstp", {"tls": "1.3"}, 1107, 1372),
    ("sstp", {"tls": "1.2", "inner": "ipv6"}, 1134, 1352),
    ("wireguard", {"implementation": "kernel"}, 1100, 1392),
    ("gre", {}, 1052, 1448),
    ("gre", {"keyed": True}, 1056, 1444),
    ("gre", {"inner": "ipv6", "outer": "ipv6", "keyed": True}, 1096, 1404),
    ("vxlan", {}, 1078, 1422),
    ("macsec", {}, 1060, 1440),
    ("macsec", {"encrypt": False, "cipher": "GCM-AES-256"}, 1060, 1440),
    ("macsec", {"inner": "ipv6"}, 1080, 1420),
]
COULD_ENCRYPT = {"ipsec", "libreswan", "l2tp_ipsec", "pptp"}
"""Kinds that some parameters keep from it: a driver gone wrong could claim that they do."""
# Through a router with NAT: outer IP bytes of a payload of 1000, before the router.
THROUGH_NAT: list[tuple[str, Params, int]] = [
    ("gre", {}, 1052),
    ("pptp", {}, 1065),
    ("l2tp_ipsec", {"udp_encapsulation": True}, 1120),
    ("l2tp_ipsec", {"ipsec": False}, 1066),
    ("libreswan", {"udp_encapsulation": True}, 1092),
]


@pytest.fixture
def lab(places: Places) -> Iterator[Lab]:
    with ExitStack() as stack:
        lab = places.lab(stack, places.machine(), LinkSpec(DIRECTION, DIRECTION, seed=1))
        yield lab
        nothing_stays(lab)


def nothing_stays(lab: Lab) -> None:
    """After ``down``: no daemon, no interface, no association, and no address of a tunnel's."""
    for host in (lab.client_host, lab.server_host):
        assert [process.name for process in host.spawned if process.poll() is None] == []
        assert interfaces(host) == {"lo", "eth0"}
        for what in ("state", "policy"):
            assert host.run(["ip", "xfrm", what]).text() == ""
        addresses = host.run(["ip", "-4", "-o", "address", "show", "dev", "eth0"]).text()
        assert len(addresses.splitlines()) == 1


def make(driver: type[Tunnel], params: Params, lab: Lab) -> Tunnel:
    tunnel = driver(driver.params_type.model_validate(params))
    for host in (lab.client_host, lab.server_host):
        assert tunnel.unavailable(host) is None
    return tunnel


def proved(lab: Lab, up: TunnelUp, *, sizes: tuple[int, ...] = FEW) -> WireProof:
    path = up.paths[0]
    prober = EngineProber(
        path,
        client=lab.client_host,
        server=lab.server_host,
        engine=lab.place.engine,
        seed=5,
        spacing_ns=SPACING_NS,
        stream=bool(up.wire.tcp_ports),
    )
    watch = Watch(lab.link_host, "a", lab.client)
    return prove(path, up.wire, prober=prober, watch=watch, payload_sizes=sizes, seed=7)


def name_of(case: Any) -> str:
    driver, params = case[0], case[1]
    kind = driver if isinstance(driver, str) else driver.kind
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_wire_the_model_and_the_known_figures_agree(
    lab: Lab, case: tuple[str, Params, int, int]
) -> None:
    kind, params, outer, point = case
    tunnel = make(tunnel_kinds()[kind], params, lab)
    around = tuple(range(point - 9, point + 10))
    lying = None
    try:
        up = tunnel.up(lab.site)
        proof = proved(lab, up, sizes=(*AROUND_PADDING, *around))
        if kind in COULD_ENCRYPT and not up.wire.encrypted:
            # A driver gone wrong: everything is as before, but it says that it encrypts.
            claim = dataclasses.replace(up.wire, encrypted=True)
            lying = proved(lab, dataclasses.replace(up, wire=claim))
        model = tunnel.encapsulation(up.negotiated[0])
        assert tunnel.problem() is None
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    assert proof.encrypted_expected is up.wire.encrypted
    assert proof.marker_seen is not up.wire.encrypted
    if lying is not None:
        assert not lying.ok
        assert lying.marker_seen
        # It is the tunnel's own packets that can be read, not somebody else's.
        assert lying.foreign_packets == 0
        assert "the plaintext marker is readable in" in lying.message
    seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in proof.samples}
    if model is not None and model.stream:
        # TCP may put both halves of a longer datagram into one segment, so the wire shows no point.
        seen = {size: lengths for size, lengths in seen.items() if size <= point}
        around = tuple(size for size in around if size <= point)
    else:
        assert proof.fragmentation_point_bytes == point
    inner = IP_VERSIONS[tunnel.params.inner]
    expected = {
        size: datagram(
            size, link_mtu_bytes=1500, encapsulation=model, inner_ip=inner
        ).outer_packet_bytes
        for size in seen
    }
    assert seen == expected
    wanted = {*AROUND_PADDING, *around}
    assert seen, proof.message
    assert {size for size in wanted if size <= max(seen)} <= seen.keys()
    assert max(seen) >= point
    assert seen[1000] == (outer,)


@pytest.mark.parametrize("case", THROUGH_NAT, ids=name_of)
def test_what_nat_hides_comes_back_through_it(
    places: Places, case: tuple[str, Params, int]
) -> None:
    kind, params, outer = case
    with ExitStack() as stack:
        link, topology = LinkSpec(DIRECTION, DIRECTION, seed=1), Topology(router="nat")
        lab = places.lab(stack, places.machine(), link, topology=topology)
        assert lab.site.nat_ipv4 == OUTSIDE_ROUTER_IPV4
        tunnel = make(tunnel_kinds()[kind], params, lab)
        try:
            proof = proved(lab, tunnel.up(lab.site))
        finally:
            tunnel.down()
        nothing_stays(lab)
    assert proof.ok, proof.message
    assert {one.payload_bytes: one.outer_packet_bytes for one in proof.samples}[1000] == (outer,)


class OtherPskOfL2tp(L2tpIpsecTunnel):
    """The client holds the secret of somebody else."""

    def _document(self, site: Site, end: Any, passwords: Any) -> Any:
        return super()._document(site, end, ["guessed"] if end.side == "client" else passwords)


class OtherPskOfLibreswan(LibreswanTunnel):
    """The client holds the secret of somebody else."""

    def _secret_lines(self, site: Site, side: Side, secret: str) -> str:
        return super()._secret_lines(site, side, "guessed" if side == "client" else secret)


class OtherPasswordOfL2tp(L2tpIpsecTunnel):
    """The client has a password that the server does not know."""

    def _call(self, site: Site, number: int, account: Any, daemon: Any) -> Any:
        return super()._call(site, number, pppd.new_account(account.name), daemon)


class OtherPasswordOfPptp(PptpTunnel):
    """The client has a password that the server does not know."""

    def _call(self, site: Site, number: int, account: Any) -> Any:
        return super()._call(site, number, pppd.new_account(account.name))


REFUSALS: list[tuple[type[Tunnel], Params, str]] = [
    (OtherPskOfL2tp, {}, r".*last messages of the client: .+; of the server: .+"),
    (OtherPskOfLibreswan, {}, r".*AUTHENTICATION_FAILED.*; of the server: .+"),
    (OtherPasswordOfL2tp, {"ipsec": False}, r"l2tp_ipsec .* did not agree on addresses.*: .+"),
    (OtherPasswordOfPptp, {}, r"pptp .*(authentication|CHAP|peer).*"),
    (
        SstpTunnel,
        {"server": "softether", "program": {"vpnserver": SERVER}},
        rf"{SERVER} on server: SoftEther VPN 5\.01 Build 9674, .* answers no SSTP call: .*",
    ),
]


@pytest.mark.parametrize(
    "case", REFUSALS, ids=[f"{driver.__name__} {params}" for driver, params, _ in REFUSALS]
)
def test_a_peer_that_refuses_is_reported_in_the_program_s_own_words(
    lab: Lab, case: tuple[type[Tunnel], Params, str]
) -> None:
    driver, params, words = case
    tunnel = make(driver, params, lab)
    try:
        with pytest.raises(TunnelError) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert re.fullmatch(words, str(caught.value)), caught.value
