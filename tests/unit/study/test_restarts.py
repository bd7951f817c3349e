"""Workloads that set the tunnel, or clients of it, up again: which studies can have them."""

import pytest

from tunnelmark.engine.link import LinkSpec
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.errors import StudyError
from tunnelmark.model.registry import make
from tunnelmark.study import load_study
from tunnelmark.study.parse import parse_study
from tunnelmark.study.study import Study
from tunnelmark.tunnels.registry import tunnel_kinds

_STUDY = """\
format = 1
name = "h"
title = "H"

[precision]
metric = "setup_p50_ns"

[[link]]
preset = "serial-8m-41ms"

[[workload]]
kind = "handshake"
{workload}
"""
_LOAD = """\
[[background]]
kind = "udp_load"
label = "others"
payload_bytes = 100
packet_rate = 10
duration = "1 s"
"""
_BURSTS = '[[background]]\nkind = "bursts"\nlabel = "others"\n'


def parsed(tunnels: str, workload: str = "") -> Study:
    return parse_study(_STUDY.format(workload=workload) + tunnels, "h.toml")


def tunnel(kind: str, *lines: str) -> str:
    return "\n".join(["[[tunnel]]", f'kind = "{kind}"', *lines, ""])


@pytest.mark.parametrize("kind", ["openvpn", "wireguard", "ssh_tun", "ipsec", "ikev2"])
def test_tunnels_that_tell_of_their_handshake_can_have_it(kind: str) -> None:
    assert tunnel_kinds()[kind].tells_set_up
    assert [spec.kind for spec in parsed(tunnel(kind)).tunnels] == [kind]


@pytest.mark.parametrize(
    ("tunnels", "words"),
    [
        (tunnel("gre"), "h.toml:11: workload handshake: tunnel gre: gre has no handshake that"),
        (tunnel("vxlan"), "vxlan has no handshake that can be timed"),
        (tunnel("openvpn") + tunnel("tinc"), "tunnel tinc: tinc has no handshake that can be"),
        (tunnel("wireguard", "count = 2"), "with one tunnel: leave out count and clients"),
        (tunnel("wireguard", 'keepalive = "5 s"'), "keepalive begins the handshake before any"),
        (tunnel("openvpn", 'keepalive = "5 s"'), "keepalive sends packets of its own during"),
        (
            tunnel("openvpn", 'key_exchange = "static"', 'cipher = "AES-256-CBC"'),
            "key_exchange static has no handshake: choose tls",
        ),
        ("", "the study has no tunnel that could be set up"),
        (tunnel("none"), "the study has no tunnel that could be set up"),
        (tunnel("openvpn") + _BURSTS, "nothing can be beside it: it takes the tunnel down"),
    ],
)
def test_what_cannot_be_set_up_again_is_refused(tunnels: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        parsed(tunnels)
    assert words in str(caught.value)


def test_the_built_in_study_has_classic_and_post_quantum_exchanges() -> None:
    study = load_study("handshake")
    exchanges = {spec.columns.get("key_exchange") for spec in study.tunnels}
    assert exchanges >= {"curve25519-sha256", "sntrup761x25519-sha512", "mlkem768x25519-sha256"}
    links = set()
    for link in (make(link_kinds(), spec) for spec in study.links):
        spec = link.spec(1)
        assert isinstance(spec, LinkSpec)
        links.add((spec.a_to_b.loss.probability, link.mtu_bytes))
    assert links == {(loss, mtu) for loss in (0.0, 0.02, 0.1) for mtu in (1280, 1500)}


_JOINS = _STUDY.replace('kind = "handshake"', 'kind = "client_joins"')


def joins(tunnels: str, workload: str = "joining = 2") -> Study:
    return parse_study(_JOINS.format(workload=workload) + tunnels, "j.toml")


@pytest.mark.parametrize("kind", ["openvpn", "wireguard", "ssh_tun", "ipsec", "ikev2"])
def test_gateways_whose_clients_can_join_can_have_it(kind: str) -> None:
    assert tunnel_kinds()[kind].joins
    assert [spec.kind for spec in joins(tunnel(kind, "clients = 3")).tunnels] == [kind]


def test_every_tunnel_whose_clients_join_has_a_gateway_and_tells_of_its_handshake() -> None:
    able = [kind for kind in tunnel_kinds().values() if kind.joins and kind.gateway]
    assert able
    assert all(kind.tells_set_up for kind in able)


@pytest.mark.parametrize(
    ("tunnels", "workload", "words"),
    [
        (
            tunnel("openvpn"),
            "",
            "j.toml:11: workload client_joins: tunnel openvpn: it has no clients that could join",
        ),
        (tunnel("ocserv", "clients = 9"), "", "clients of ocserv cannot leave and join again"),
        (
            tunnel("wireguard", "clients = 2"),
            "joining = 2",
            "joining is 2, must be less than its 2 clients: one at least stays",
        ),
        (tunnel("openvpn", "clients = 5"), "", "joining is 5, must be less than its 5 clients"),
        (
            tunnel("wireguard", "clients = 9", 'keepalive = "5 s"'),
            "",
            "keepalive begins the handshake before any packet",
        ),
        (tunnel("none", "clients = 9"), "", "the study has no tunnel whose clients could join"),
        (
            tunnel("openvpn", "clients = 9") + _LOAD,
            "",
            "nothing can be beside it: the clients that stay send what the workload says",
        ),
    ],
)
def test_clients_that_cannot_join_are_refused(tunnels: str, workload: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        joins(tunnels, workload)
    assert words in str(caught.value)
