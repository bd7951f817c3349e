"""Which tunnels TCP carries, as their models and what is on the link have it."""

import pytest

from tunnelmark.model.errors import RefusedError
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds


def driver(kind: str, params: dict[str, object]) -> Tunnel:
    own = tunnel_kinds()[kind]
    return own(own.params_type.model_validate(params))


@pytest.mark.parametrize(
    ("kind", "params", "ports"),
    [
        ("openvpn", {"transport": "tcp", "count": 2}, ["TCP 1194 to 1195"]),
        ("openvpn", {}, []),
        # Their TCP agrees on keys, and UDP carries packets.
        ("tinc", {}, []),
        ("ocserv", {"transport": "dtls"}, []),
        ("ocserv", {"transport": "tls"}, ["TCP 443"]),
        ("tailscale", {}, []),
        ("tailscale", {"path": "derp"}, ["TCP 8443"]),
        # The other port of the recipe is inside.
        ("stunnel", {"count": 3}, ["TCP 5100 to 5102"]),
        ("vtun", {}, ["TCP 5000"]),
        ("fastd", {}, []),
        ("sing_box", {"protocol": "trojan"}, ["TCP 8443"]),
        ("sing_box", {"protocol": "tuic"}, []),
        ("sing_box", {"protocol": "shadowsocks"}, ["TCP 8443"]),
        ("sstp", {}, ["TCP 443"]),
        ("softether", {}, ["TCP 5555"]),
        ("ipsec", {}, []),
        ("wpa2", {}, []),
        ("none", {}, []),
    ],
)
def test_ports_of_the_connections(kind: str, params: dict[str, object], ports: list[str]) -> None:
    assert [str(one) for one in driver(kind, params).carriers()] == ports


# A recipe has no packets before a study gives its text.
@pytest.mark.parametrize("kind", sorted(tunnel_kinds().keys() - {"recipe"}))
def test_it_has_carriers_exactly_if_its_model_is_a_stream(kind: str) -> None:
    tunnel = driver(kind, {})
    try:
        model = tunnel.encapsulation(tunnel.by_model(1500))
    except RefusedError:
        # Packets without a model: what they are on the link is held by tests/lab.
        return
    assert bool(tunnel.carriers()) == (model is not None and model.stream)


def test_what_tcp_does_not_carry_has_no_congestion_control() -> None:
    assert driver("openvpn", {"transport": "tcp", "congestion": "reno"}).no_carrier() is None
    assert driver("openvpn", {"congestion": "reno"}).no_carrier() == (
        "congestion is 'reno', but no TCP connection carries OpenVPN with these parameters: "
        "leave it out"
    )
