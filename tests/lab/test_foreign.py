"""The emulator sees every frame: one in the clear beside a tunnel is reported at any moment."""

import sys

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.wireguard.driver import WireGuardParams, WireGuardTunnel

pytestmark = pytest.mark.lab

_DIRECTION = Direction(rate_bit_s=100_000_000, delay_ns=1_000_000, queue=Queue("bytes", 65536))
LINK = LinkSpec(a_to_b=_DIRECTION, b_to_a=_DIRECTION, seed=1)
_SEND = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"in the clear", (sys.argv[1], 7788))
"""


def test_one_datagram_in_the_clear_among_those_of_a_tunnel(ledger: Ledger, engine: str) -> None:
    tunnel = WireGuardTunnel(WireGuardParams.model_validate({"implementation": "wireguard-go"}))
    with Lab(ledger, Topology(), LINK, engine=engine) as lab:
        up = tunnel.up(lab.site)
        inside = ["ping", "-c", "3", "-i", "0.2", "-W", "60", up.paths[0].server_address]
        before = lab.counters()
        lab.client_host.run(inside, timeout_s=90)
        middle = lab.counters()
        lab.client_host.run([sys.executable, "-c", _SEND, lab.server.ipv4])
        lab.client_host.run(inside, timeout_s=90)
        after = lab.counters()
        tunnel.down()
    (check,) = foreign_check(before, middle, [up.wire])
    assert check.ok, check.message
    (check,) = foreign_check(middle, after, [up.wire])
    assert (check.ok, check.value) == (False, 1.0), check.message
    assert "UDP, port 7788 (forward)" in check.message
