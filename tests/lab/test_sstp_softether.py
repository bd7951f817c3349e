"""SSTP with SoftEther's server, in the machine. Debian's answers no call, so another is needed.

TUNNELMARK_SOFTETHER names a tar, not compressed, of /opt/softether with vpnserver in it, which
finds its libraries there.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from places import Places, driven, interfaces
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.overhead import datagram
from tunnelmark.probes.prober import EngineProber
from tunnelmark.probes.wire import Watch, prove
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.sstp.driver import SstpTunnel

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

PROGRAM = "/opt/softether/vpnserver"
PARAMS: dict[str, object] = {"server": "softether", "program": {"vpnserver": PROGRAM}}
MOST_BYTES = 1372
"""Payload of a packet as long as the inner MTU of 1400; longer ones may share a segment."""
DIRECTION = Direction(rate_bit_s=100_000_000, delay_ns=5_000_000, queue=Queue("bytes", 1 << 20))


@pytest.fixture
def lab(places: Places) -> Iterator[Lab]:
    given = os.environ.get("TUNNELMARK_SOFTETHER")
    if given is None:
        pytest.skip("TUNNELMARK_SOFTETHER names no SoftEther VPN Server")
    with ExitStack() as stack:
        lab = places.lab(stack, places.machine(), LinkSpec(DIRECTION, DIRECTION, seed=1))
        if lab.server_host.has(PROGRAM) is None:
            tar = PurePosixPath("/root/softether.tar")
            lab.server_host.put(tar, Path(given).read_bytes())
            lab.server_host.run(["tar", "-C", "/", "-xf", str(tar)], timeout_s=60)
        before = beside(lab)
        yield lab
        # It keeps state beside itself, but not where others would find it.
        assert beside(lab) == before
        for host in (lab.client_host, lab.server_host):
            assert [process.name for process in host.spawned if process.poll() is None] == []
            assert interfaces(host) == {"lo", "eth0"}


def beside(lab: Lab) -> str:
    return lab.server_host.run(["ls", "-l", str(PurePosixPath(PROGRAM).parent)]).text()


@pytest.mark.parametrize(("tls", "outer"), [("1.3", 1110), ("1.2", 1117)])
def test_the_wire_and_the_model_agree(lab: Lab, tls: str, outer: int) -> None:
    tunnel = driven("sstp", PARAMS | {"tls": tls})
    assert tunnel.unavailable(lab.server_host) is None
    try:
        up = tunnel.up(lab.site)
        path, (agreed,) = up.paths[0], up.negotiated
        ends: dict[str, Any] = {"client": lab.client_host, "server": lab.server_host}
        prober = EngineProber(path, **ends, engine=lab.place.engine, seed=5, spacing_ns=20_000_000)
        proof = prove(
            path,
            up.wire,
            prober=prober,
            watch=Watch(lab.link_host, "a", lab.client),
            payload_sizes=(25, 100, 1000, MOST_BYTES),
            seed=7,
        )
        model = tunnel.encapsulation(agreed)
        tunnel.check_agreed()
        assert tunnel.problem() is None
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    assert not proof.marker_seen
    assert proof.foreign_packets == 0
    assert f"TLSv{tls} " in agreed.details["encryption"]
    assert (agreed.details["authentication"], agreed.details["compression"]) == (
        "MS-CHAPv2",
        "none",
    )
    seen = {one.payload_bytes: one.outer_packet_bytes for one in proof.samples}
    seen = {size: lengths for size, lengths in seen.items() if size <= MOST_BYTES}
    assert seen == {
        size: datagram(size, link_mtu_bytes=1500, encapsulation=model).outer_packet_bytes
        for size in seen
    }
    assert seen[1000] == (outer,)
    assert MOST_BYTES in seen


def test_a_server_that_is_killed_is_a_problem(lab: Lab) -> None:
    tunnel = driven("sstp", PARAMS | {"count": 2})
    try:
        up = tunnel.up(lab.site)
        assert [path.name for path in up.paths] == ["0", "1"]
        tunnel.check_agreed()
        assert tunnel.problem() is None
        up.processes[-1][1].kill()
        deadline = time.monotonic() + 10
        while (problem := tunnel.problem()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        tunnel.down()
    assert problem is not None
    assert re.match(r"softether-server-\S+ on server ended with status -9: ", problem)


class OtherPassword(SstpTunnel):
    """The client has a password that the server does not know."""

    def _call(self, site: Any, number: int, account: Any) -> Any:
        return super()._call(site, number, pppd.new_account(account.name))


def test_a_user_that_the_hub_does_not_know_is_refused(lab: Lab) -> None:
    tunnel = driven("sstp", PARAMS, OtherPassword)
    try:
        with pytest.raises(RefusedError, match="CHAP authentication failed"):
            tunnel.up(lab.site)
    finally:
        tunnel.down()
