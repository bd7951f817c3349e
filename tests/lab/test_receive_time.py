"""What a kernel tunnel's decapsulation costs is in the delay, as it is behind a TUN."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tunnelmark.engine import config
from tunnelmark.engine.config import ReceiveTime

pytestmark = [pytest.mark.lab, pytest.mark.timing]

MS = 1_000_000
A, B = "tmrt-a", "tmrt-b"
RULES = 16000
"""Looked through for each packet between the outer one's arrival and its decapsulation."""


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def costly_vxlan() -> Iterator[None]:
    """Make a VXLAN whose receiving end works on each outer packet before it opens it."""
    for name in (A, B):
        sh("ip", "netns", "add", name)
    try:
        sh(*("ip", "link", "add", "v", "netns", A, "type", "veth", "peer", "v", "netns", B))
        for number, name in ((1, A), (2, B)):
            ip = ("ip", "-n", name)
            sh(*ip, "addr", "add", f"198.18.0.{number}/24", "dev", "v")
            sh(*ip, "link", "set", "v", "up")
            ends = ("local", f"198.18.0.{number}", "remote", f"198.18.0.{3 - number}")
            sh(*ip, "link", "add", "x", "type", "vxlan", "id", "5", *ends, "dstport", "4789")
            sh(*ip, "addr", "add", f"198.19.0.{number}/24", "dev", "x")
            sh(*ip, "link", "set", "x", "up")
        rules = "".join(f"udp dport 4789 udp sport {k + 1} drop\n" for k in range(RULES))
        table = f"table ip t {{\nchain c {{\ntype filter hook input priority 0;\n{rules}}}\n}}\n"
        command = ["ip", "netns", "exec", B, "nft", "-f", "-"]
        subprocess.run(command, input=table, text=True, check=True, capture_output=True)
        yield
    finally:
        for name in (A, B):
            sh("ip", "netns", "del", name)


def forward_ns(engine: str, network: str, receive_time: ReceiveTime) -> float:
    """Return the median forward delay over the network of that prefix."""
    session = config.Session(0, 1000, bytes(16).hex())
    reflect: dict[str, Any] = config.reflect_config(
        [f"{network}.2:7700"],
        [session],
        records=None,
        realtime_priority=10,
        parent_pid=None,
        receive_time=receive_time,
    )
    command = ["ip", "netns", "exec", B, engine, "reflect", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reflector:
        assert reflector.stdin is not None
        assert reflector.stdout is not None
        reflector.stdin.write(json.dumps(reflect))
        reflector.stdin.close()
        reflector.stdout.readline()
        flow = config.Flow(
            session=session,
            target=f"{network}.2:7700",
            source=f"{network}.1:0",
            gap_ns=2 * MS,
            start_offset_ns=0,
            packets=500,
            duration_ns=None,
            payload_bytes=500,
            content={"type": "random"},
        )
        send = config.send_config(
            [flow],
            seed=1,
            drain_ns=1000 * MS,
            late_ns=1000 * MS,
            records=None,
            realtime_priority=10,
            parent_pid=None,
            receive_time=receive_time,
        )
        done = subprocess.run(
            ["ip", "netns", "exec", A, engine, "send", "-"],
            input=json.dumps(send),
            text=True,
            check=True,
            capture_output=True,
        )
        reflector.terminate()
        reflector.stdout.read()
    (reported,) = json.loads(done.stdout.splitlines()[-1])["flows"]
    assert reported["returned"] == 500
    return float(reported["owd_forward_ns"]["p50"])


@pytest.mark.usefixtures("costly_vxlan")
def test_what_is_done_to_an_outer_packet_is_in_the_delay_by_user_time_alone(engine: str) -> None:
    cost = {
        time: forward_ns(engine, "198.19.0", time) - forward_ns(engine, "198.18.0", time)
        for time in ("kernel", "user")
    }
    # So many rules take far more than the wake-up of a program differs by; the bare path has none.
    assert cost["user"] > 50_000, cost
    # If this ever fails, the kernel stamps what it finds inside again, and nobody needs user time.
    assert cost["kernel"] < cost["user"] / 4, cost
