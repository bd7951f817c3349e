"""The TCP that carries a tunnel keeps its congestion control when a workload changes the hosts'."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from places import driven
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.carrier import noted, set_carrier
from tunnelmark.lab.lab import Lab
from tunnelmark.model.congestion import default
from tunnelmark.model.host import Host
from tunnelmark.model.topology import Topology

pytestmark = pytest.mark.lab

_PORT = 7791
_LISTEN = f"""
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], {_PORT}), family=family)
print("bound", flush=True)
kept = [listener.accept() for _ in range(2)]
"""
_CALL = f"""
import socket, sys, time
kept = socket.create_connection((sys.argv[1], {_PORT}), timeout=10)
kept.sendall(b"hello")
print("connected", flush=True)
time.sleep(600)
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine=find_engine()) as lab:
        yield lab


def names(host: Host, port: int) -> list[str]:
    """Return the congestion control of each connection from or to a port, by ``ss``."""
    known = {"reno", "cubic", "bbr"}
    ask = ["ss", "-tinHO", "state", "established", f"( sport = :{port} or dport = :{port} )"]
    lines = host.run(ask).text().splitlines()
    return [next(iter(known & set(line.split()))) for line in lines]


def within(lab: Lab, host: str, port: int, expected: set[str]) -> list[str]:
    """Return what there is once it is as expected, or in the end."""
    end = time.monotonic() + 10
    while True:
        found = names(getattr(lab, f"{host}_host"), port)
        if (found and set(found) == expected) or time.monotonic() > end:
            return found
        time.sleep(0.05)


@pytest.mark.parametrize("congestion", ["cubic", None])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("openvpn", {"transport": "tcp"}),
        ("ssh_tun", {"outer": "ipv6", "inner": "ipv6"}),
        ("stunnel", {}),
        # A connection for each flow: those of a trial are opened during it.
        ("sing_box", {"protocol": "vless"}),
        ("sing_box", {"protocol": "shadowsocks", "count": 2}),
    ],
)
def test_it_is_the_studys_or_the_hosts_own_and_not_the_workloads(
    lab: Lab, kind: str, params: dict[str, Any], congestion: str | None
) -> None:
    hosts = (lab.client_host, lab.server_host)
    own = default(lab.client_host)
    # What a workload sets must differ from what carries the tunnel.
    workload = "reno"
    assert own != workload
    tunnel = driven(kind, {**params, "congestion": congestion})
    spawned = []
    try:
        set_carrier(tunnel, hosts)
        up = noted(tunnel.up(lab.site), tunnel, hosts)
        expected = congestion or own
        chosen_by = "kernel" if congestion is None else "study"
        for agreed in up.negotiated:
            assert agreed.details["carrier_congestion"] == expected
            assert agreed.details["carrier_congestion_chosen_by"] == chosen_by
        for host in hosts:
            host.run(["sysctl", "-qw", f"net.ipv4.tcp_congestion_control={workload}"])
        (ports,) = tunnel.carriers()
        path = up.paths[-1]
        for host, script, said in (
            (lab.server_host, _LISTEN, "bound"),
            (lab.client_host, _CALL, "connected"),
        ):
            argv = [sys.executable, "-c", script, path.server_address]
            spawned.append(host.spawn(argv, name=f"{said}-{time.monotonic_ns()}", lines=True))
            assert spawned[-1].read_line(10) == said
        for end in ("client", "server"):
            assert set(within(lab, end, ports.last, {expected})) == {expected}, end
        # The traffic inside has what the workload asks for, where the hosts' kernels end it.
        assert names(lab.client_host, _PORT) == [workload]
    finally:
        for process in spawned:
            process.stop()
        tunnel.down()
