"""What a study can ask of Tailscale, and what a packet costs on each of its ways."""

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.overhead import datagram
from tunnelmark.tunnels.tailscale import TailscaleParams, TailscaleTunnel


def tunnel(**params: object) -> TailscaleTunnel:
    return TailscaleTunnel(TailscaleParams.model_validate(params))


def test_userspace_networking_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="it has no interface for the workloads"):
        tunnel(mode="userspace")
    assert tunnel(mode="tun").params.mode == "tun"


def test_a_gateway_is_refused() -> None:
    assert tunnel(clients=2).no_gateway() == (
        "tailscale cannot be a gateway: leave out clients, or set count"
    )


def test_ipv6_inside_needs_its_least_mtu() -> None:
    with pytest.raises(RefusedError, match="IPv6 inside needs 1280"):
        tunnel(inner="ipv6", mtu_bytes=1279).bring_up(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "outer"),
    [
        # 1028 padded to 1040; WireGuard 32, then UDP 28, or DERP 37, TLS 22, TCP with IP 52.
        ({}, (1100,)),
        ({"outer": "ipv6"}, (1120,)),
        ({"path": "derp"}, (1183,)),
        ({"path": "derp", "outer": "ipv6"}, (1203,)),
    ],
)
def test_what_stands_around_a_packet(params: dict[str, object], outer: tuple[int, ...]) -> None:
    one = tunnel(**params)
    model = one.encapsulation(one.by_model(1500))
    assert datagram(1000, link_mtu_bytes=1500, encapsulation=model).outer_packet_bytes == outer


def test_the_padding_stays_within_the_mtu() -> None:
    one = tunnel(mtu_bytes=1411)
    model = one.encapsulation(one.by_model(1500))
    wire = datagram(1383, link_mtu_bytes=1500, encapsulation=model)
    assert wire.outer_packet_bytes == (1411 + 32 + 28,)
