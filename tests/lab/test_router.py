"""The router between link and server, with and without NAT, by what the server sees."""

import sys

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.host import Host
from tunnelmark.model.topology import (
    CLIENT_IPV4,
    CLIENT_IPV6,
    OUTSIDE_ROUTER_IPV4,
    OUTSIDE_SERVER_IPV4,
    OUTSIDE_SERVER_IPV6,
    Router,
    Topology,
)

pytestmark = pytest.mark.lab

_DIRECTION = Direction(rate_bit_s=100_000_000, delay_ns=1_000_000, queue=Queue("bytes", 65536))
LINK = LinkSpec(a_to_b=_DIRECTION, b_to_a=_DIRECTION, seed=1)

# Answers one datagram with the address that it came from.
_MIRROR = """
import socket, sys
own = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 9000))
print("ready", flush=True)
data, peer = own.recvfrom(100)
own.sendto(peer[0].encode(), peer)
"""
_ASK = """
import socket, sys
own = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(60)
own.sendto(b"who am I", (sys.argv[1], 9000))
print(own.recv(100).decode())
"""


def seen_at(server: Host, client: Host, address: str) -> str:
    mirror = server.spawn(
        [sys.executable, "-c", _MIRROR, address], name=f"mirror{len(address)}", lines=True
    )
    assert mirror.read_line(90) == "ready"
    return client.run([sys.executable, "-c", _ASK, address], timeout_s=90).text().strip()


@pytest.mark.parametrize(
    ("router", "seen"), [("routed", CLIENT_IPV4), ("nat", OUTSIDE_ROUTER_IPV4)]
)
def test_the_server_sees_the_client_as_the_router_lets_it(
    ledger: Ledger, engine: str, router: Router, seen: str
) -> None:
    with Lab(ledger, Topology(router=router), LINK, engine=engine) as lab:
        assert (lab.server.ipv4, lab.server.ipv6) == (OUTSIDE_SERVER_IPV4, OUTSIDE_SERVER_IPV6)
        assert lab.site.nat_ipv4 == (seen if router == "nat" else None)
        assert seen_at(lab.server_host, lab.client_host, lab.server.ipv4) == seen
        # IPv6 needs no NAT and gets none.
        assert seen_at(lab.server_host, lab.client_host, lab.server.ipv6) == CLIENT_IPV6
        # Through the link, in whole packets of its MTU, one hop further.
        counters = lab.counters()
        assert counters is not None
        assert counters.forward["offered"] > 0
        ping = ["ping", "-c", "1", "-W", "60", "-M", "do", "-s", "1472", lab.server.ipv4]
        assert "ttl=63" in lab.client_host.run(ping, timeout_s=90).text()
        assert lab.problem() is None


def test_without_a_router_both_are_on_one_wire(ledger: Ledger, engine: str) -> None:
    with Lab(ledger, Topology(), LINK, engine=engine) as lab:
        assert lab.site.nat_ipv4 is None
        ping = ["ping", "-c", "1", "-W", "60", lab.server.ipv4]
        assert "ttl=64" in lab.client_host.run(ping, timeout_s=90).text()


def test_the_router_goes_with_the_lab(ledger: Ledger, engine: str) -> None:
    for _ in range(2):
        with Lab(ledger, Topology(router="nat"), None, engine=engine) as lab:
            assert seen_at(lab.server_host, lab.client_host, lab.server.ipv4) == OUTSIDE_ROUTER_IPV4
