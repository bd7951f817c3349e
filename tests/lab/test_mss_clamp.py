"""MSS clamping: the SYN on the link offers the segment of the study."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from places import driven
from small_study import one_echo
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.mss_clamp import clamp, removal
from tunnelmark.model.host import Host
from tunnelmark.model.topology import Topology

pytestmark = pytest.mark.lab

CONNECT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 7791), family=family)
print("bound", flush=True)
listener.accept()
"""
CALL = "import socket, sys; socket.create_connection((sys.argv[1], 7791), timeout=5).close()"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine=find_engine()) as lab:
        yield lab


def offered(lab: Lab, client: Host, interface: str, address: str) -> list[int]:
    """Return the MSS of SYN and SYN-ACK as tcpdump shows them at the client."""
    watcher = client.spawn(
        [
            "tcpdump",
            "-i",
            interface,
            "-n",
            "-l",
            "--immediate-mode",
            "tcp[tcpflags] & tcp-syn != 0 or (ip6 and tcp and ip6[53] & 2 != 0)",
        ],
        name=f"syn-{time.monotonic_ns()}",
        lines=True,
    )
    listener = lab.server_host.spawn(
        [sys.executable, "-c", CONNECT, address], name=f"listen-{time.monotonic_ns()}", lines=True
    )
    try:
        assert listener.read_line(10) == "bound"
        for _ in range(500):
            if "listening on" in watcher.log_tail(5):
                break
            time.sleep(0.02)
        client.run([sys.executable, "-c", CALL, address])
        found = [re.search(r"mss (\d+)", str(watcher.read_line(10))) for _ in range(2)]
    finally:
        listener.stop()
        watcher.stop()
    return [int(one.group(1)) for one in found if one]


@pytest.mark.parametrize(
    ("kind", "params", "mss_bytes", "expected"),
    [
        ("none", {}, 1200, [1200, 1200]),
        ("none", {}, 9000, [1460, 1460]),
        ("openvpn", {"mtu_bytes": 1500}, 1360, [1360, 1360]),
        ("openvpn", {"count": 2}, 536, [536, 536]),
        ("wireguard", {"inner": "ipv6"}, 1220, [1220, 1220]),
    ],
)
def test_syn_and_syn_ack_offer_what_the_study_asks_for(
    lab: Lab, kind: str, params: dict[str, Any], mss_bytes: int, expected: list[int]
) -> None:
    tunnel = driven(kind, {**params, "mss_clamp": mss_bytes})
    assert tunnel.unavailable(lab.client_host) is None
    try:
        up = clamp(tunnel.up(lab.site), mss_bytes, client=lab.client_host, server=lab.server_host)
        assert all(agreed.details["mss_clamp"] == str(mss_bytes) for agreed in up.negotiated)
        path = up.paths[-1]
        found = offered(lab, lab.client_host, path.client_interface, path.server_address)
        assert found == expected
    finally:
        for take_away in removal(lab.client_host, lab.server_host):
            take_away()
        tunnel.down()
    assert "tm-mss" not in lab.client_host.run(["nft", "list", "tables"]).text()


@pytest.mark.parametrize("kind", ["none", "openvpn", "wireguard"])
def test_every_client_of_a_gateway_is_clamped(kind: str) -> None:
    tunnel = driven(kind, {"clients": 3, "mss_clamp": 900})
    topology = Topology(clients=3)
    with Ledger() as ledger, Lab(ledger, topology, None, engine=find_engine()) as lab:
        try:
            up = tunnel.up(lab.site)
            up = clamp(up, 900, client=lab.client_host, server=lab.server_host)
            for path in up.paths:
                assert path.client is not None
                found = offered(lab, path.client.host, path.client_interface, path.server_address)
                assert found == [900, 900], path.name
        finally:
            tunnel.down()


@pytest.mark.slow
@pytest.mark.xdist_group("runs")
def test_a_run_clamps_and_records_it(study: Callable[[str], Any]) -> None:
    tunnel = '[[tunnel]]\nkind = "openvpn"\nmss_clamp = 1300\n'
    one = study(one_echo("clamped", "A tunnel behind a gateway that clamps", tunnel))
    one.run()
    (block,) = [
        record
        for path in one.directory.glob("**/*.json")
        if isinstance(record := json.loads(path.read_text("utf-8")), dict) and "tunnel" in record
    ]
    assert block["negotiated"][0]["details"]["mss_clamp"] == "1300"
    assert one.leftovers() == []
