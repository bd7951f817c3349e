"""What a gateway's log says of each client."""

from pathlib import PurePosixPath
from typing import Any

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.openvpn import OpenVpnParams, OpenVpnTunnel, driver, gateway
from tunnelmark.tunnels.openvpn.gateway import client_file, common_name, of_clients, server_words
from tunnelmark.tunnels.openvpn.log import read_log

LOG = """\
2026-11-22 19:20:00 us=100 OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)]
2026-11-22 19:20:00 us=200 net_iface_mtu_set: mtu 1500 for tmxo0s
2026-11-22 19:20:00 us=300 UDPv4 link remote: [AF_UNSPEC]
2026-11-22 19:20:01 us=100 198.18.0.1:40000 Control Channel: TLSv1.3, cipher A
2026-11-22 19:20:01 us=110 198.18.0.3:40001 Control Channel: TLSv1.2, cipher B
2026-11-22 19:20:01 us=120 tmx-client-0/198.18.0.1:40000 Data Channel: cipher 'AES-256-GCM'
2026-11-22 19:20:01 us=130 tmx-client-1/198.18.0.3:40001 Data Channel: cipher 'AES-128-GCM'
2026-11-22 19:20:02 us=130 198.18.0.4:40002 TLS: Initial packet from [AF_INET]198.18.0.4:40002
"""


def test_each_client_has_its_own_lines_and_those_of_the_gateway() -> None:
    found = of_clients(LOG)
    assert set(found) == {"tmx-client-0", "tmx-client-1"}
    first, second = found["tmx-client-0"], found["tmx-client-1"]
    assert (first.cipher, second.cipher) == ("AES-256-GCM", "AES-128-GCM")
    assert first.control_channel == "TLSv1.3, cipher A"
    assert second.control_channel == "TLSv1.2, cipher B"
    assert {first.version, second.version} == {"OpenVPN 2.6.14"}
    assert {first.mtu_bytes, second.mtu_bytes} == {1500}
    assert {first.transport, second.transport} == {"udp"}


def test_what_is_said_of_a_client_goes_before_what_the_gateway_says_of_itself() -> None:
    peer = "tmx-client-0/198.18.0.1:40000"
    more = (
        f"2026-11-22 19:20:02 us=1 {peer} WARNING: 'x' is inconsistent\n"
        "2026-11-22 19:20:02 us=2 WARNING: own\n"
        f"2026-11-22 19:20:02 us=3 {peer} Data Channel: cipher 'AES-192-GCM'\n"
    )
    found = of_clients(LOG + more)
    assert found["tmx-client-0"].cipher == "AES-192-GCM"
    assert found["tmx-client-0"].warnings == ("own", "'x' is inconsistent")
    assert found["tmx-client-1"].warnings == ("own",)


def _ends(site: Site, log: str) -> tuple[Any, Any, list[Any]]:
    tunnel = OpenVpnTunnel(OpenVpnParams.model_validate({"clients": 2}))
    host: Any = site.server.host
    process = host.spawn(["openvpn"], name="openvpn-server-0")
    process.log = log
    server = driver._End("server", site.server, "tmo0s", process, str, "server", 0)
    clients = [
        driver._End(f"client {n}", site.client, "tmo0c", process, str, "client", n) for n in (0, 1)
    ]
    return tunnel, server, clients


def test_a_gateway_s_log_is_read_once_for_all_clients(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunnel, server, clients = _ends(site, LOG)
    lines: list[str] = []

    def counted(text: str) -> Any:
        lines.extend(text.splitlines())
        return read_log(text)

    monkeypatch.setattr(gateway, "read_log", counted)
    found = tunnel._of_gateway(server, clients)
    assert [found[number].cipher for number in (0, 1)] == ["AES-256-GCM", "AES-128-GCM"]
    # Each line but that of the client which has not shown its certificate.
    assert len(lines) == len(LOG.splitlines()) - 1


def test_a_client_of_which_the_gateway_says_nothing_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SHOWN_LIMIT_S", 0.0)
    tunnel, server, clients = _ends(site, LOG.replace("tmx-client-1/", ""))
    with pytest.raises(TunnelError, match="does not say what it agreed on with client 1"):
        tunnel._of_gateway(server, clients)


def test_a_client_over_ipv6_is_known_by_its_address() -> None:
    peer = "fd00:7472::3:40000"
    log = f"{peer} Control Channel: TLSv1.3\nc/{peer} Data Channel: cipher 'X'\n"
    assert of_clients(log)["c"].control_channel == "TLSv1.3"
    assert of_clients(log.replace("fd00:7472::3:", "[fd00:7472::3]:"))["c"].cipher == "X"


def test_a_gateway_gives_each_client_its_address_and_nothing_to_strangers() -> None:
    words = server_words("ipv4", PurePosixPath("/x/clients"))
    assert words[:5] == ["--topology", "subnet", "--server", "198.19.0.0", "255.255.255.0"]
    assert "--ccd-exclusive" in words
    assert "--client-to-client" not in words
    file = client_file("ipv4", "198.19.0.3", "198.19.0.1")
    assert file == b"ifconfig-push 198.19.0.3 255.255.255.0\n"
    file = client_file("ipv6", "fd00:7473::3", "fd00:7473::1")
    assert file == b"ifconfig-ipv6-push fd00:7473::3/64 fd00:7473::1\n"
    assert common_name("tmx", 12) == "tmx-client-12"
