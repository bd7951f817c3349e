"""Tailscale by itself: what its control server refuses, who may join, a way that is lost."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from places import driven
from skips import tailscale_control
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.tailscale import FIRST_PORT, TailscaleTunnel

PROGRAM = tailscale_control() or "tunnelmark-tailscale-control"
PAIR = ("-pair", "client-0=198.19.0.2,server-0=198.19.0.1")
ALL = (
    *("-address", "198.18.0.2", "-port", "8443", "-stun", "3478"),
    *("-join-key", "/nowhere", "-certificate", "/nowhere", *PAIR),
)

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(tailscale_control() is None, reason=f"{PROGRAM} is not installed"),
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine=find_engine()) as lab:
        yield lab


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-x",), "flag provided but not defined: -x"),
        (ALL[2:], "-address must be set, as all options"),
        (ALL[:-2], "-pair must be set, as all options"),
        ((*ALL, "more"), '"more" is not an option'),
        ((*ALL, "-port", "65536"), "a port is 65536, must be 1 to 65535"),
        (ALL, "open /nowhere: no such file or directory"),
        ((*ALL, *PAIR), 'invalid value "client-0=198.19.0.2,server-0=198.19.0.1" for flag -pair'),
        (("-pair", "a=198.19.0.2"), 'invalid value "a=198.19.0.2" for flag -pair: must be two'),
        ((*ALL, "-join-key", "/dev/null"), "/dev/null is empty: anyone could join"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"tunnelmark-tailscale-control: error: {said}")


class OtherKey(TailscaleTunnel):
    """The client has not got the key with which nodes join."""

    def _start_control(self, site: Site) -> None:
        super()._start_control(site)
        site.client.host.put(self._folder(site.client.host) / "join-key", b"guessed")


def test_a_node_without_the_key_does_not_join(lab: Lab) -> None:
    tunnel = driven("tailscale", {}, OtherKey)
    try:
        with pytest.raises(TunnelError, match=r"client of tunnel 0 could not join: .*authkey"):
            tunnel.up(lab.site)
    finally:
        tunnel.down()


def rules(host: Host) -> str:
    words = ("ip", "-4", "rule"), ("ip", "-6", "rule")
    return "".join(host.run(one).text() for one in words)


def test_a_node_that_was_killed_leaves_nothing(lab: Lab) -> None:
    hosts = (lab.client_host, lab.server_host)
    of_the_machine = (Path("/etc/resolv.conf"), Path("/var/lib/tailscale"))
    before = [rules(host) for host in hosts]
    files = [path.is_file() and path.read_bytes() for path in of_the_machine]
    there = [path.exists() for path in of_the_machine]
    tunnel = driven("tailscale", {})
    try:
        up = tunnel.up(lab.site)
        assert all("lookup 52" in rules(host) for host in hosts)
        for _, process in up.processes:
            process.kill()
            process.wait(10)
    finally:
        tunnel.down()
    assert [rules(host) for host in hosts] == before
    assert [path.is_file() and path.read_bytes() for path in of_the_machine] == files
    assert [path.exists() for path in of_the_machine] == there


def test_a_host_with_a_tailscale_of_its_own_is_refused(lab: Lab) -> None:
    lab.client_host.run(["ip", "rule", "add", "priority", "5270", "lookup", "52"])
    before = rules(lab.client_host)
    tunnel = driven("tailscale", {})
    try:
        with pytest.raises(RefusedError, match=r"client has a rule of Tailscale \(5270: from all"):
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert rules(lab.client_host) == before


@pytest.mark.parametrize("way", ["direct", "derp"])
def test_it_passes_nat(way: str) -> None:
    nat = Topology(router="nat")
    with Ledger() as ledger, Lab(ledger, nat, None, engine=find_engine()) as lab:
        tunnel = driven("tailscale", {"path": way})
        try:
            up = tunnel.up(lab.site)
            tunnel.check_agreed()
            assert up.negotiated[0].details["path"] == way
        finally:
            tunnel.down()


def sent_until_it_is_noticed(tunnel: Tunnel, client: Host, address: str) -> None:
    for _ in range(60):
        client.run(["ping", "-n", "-c", "1", "-W", "1", address], check=False)
        tunnel.check_agreed()
        time.sleep(0.5)


def test_a_direct_way_that_is_lost_is_reported(lab: Lab) -> None:
    tunnel = driven("tailscale", {})
    client = lab.client_host
    try:
        (path,) = tunnel.up(lab.site).paths
        tunnel.check_agreed()
        rule = f"udp dport {FIRST_PORT} drop"
        hook = "type filter hook output priority 0;"
        client.run(["nft", "add", "table", "inet", "cut"])
        client.run(["nft", "add", "chain", "inet", "cut", "out", f"{{ {hook} }}"])
        client.run(["nft", "add", "rule", "inet", "cut", "out", *rule.split()])
        with pytest.raises(TunnelError, match="sends over relay lab, the study asks for path 'dir"):
            sent_until_it_is_noticed(tunnel, client, path.server_address)
        # Packets still arrive, only by the other way.
        client.run(["ping", "-n", "-c", "1", "-w", "10", path.server_address], timeout_s=15)
        assert tunnel.problem() is None
    finally:
        tunnel.down()
