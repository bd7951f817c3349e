"""The WLAN emulator with real packets: throughput and delay as on air."""

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tunnelmark.engine.events import wait_for
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.lab.lab import Lab
from tunnelmark.links.wlan import Wlan, WlanParams
from tunnelmark.model.errors import LabError
from tunnelmark.model.topology import SERVER_IPV4, Topology

pytestmark = pytest.mark.lab

SNAP_IP_UDP_BYTES = 8 + 20 + 8
MEASURED_S = 3.0
# In virtual time crates/link/tests/wlan_truth.rs has all sizes.
TABLE_802_11B = {64: 0.546, 1500: 6.056}
TABLE_802_11A = {1500: 30.50}


@dataclass
class Line:
    lab: Lab
    engine: str

    def send(self, *, payload: int, gap_ns: int, duration_s: float, answer: bool = False) -> Any:
        """Start a reflector and a sender towards it; return the sender."""
        key = secrets.token_hex(16)
        flow = {"flow": 0, "session": 7, "key": key}
        reflect = {
            "protocol": 2,
            "parent_pid": os.getpid(),
            "listen": [f"{SERVER_IPV4}:7700"],
            "sessions": [flow],
            "answer": answer,
            "records": None,
            "realtime_priority": None,
            "cpu": None,
            "socket_buffer_bytes": 1 << 20,
        }
        send = {
            "protocol": 2,
            "parent_pid": os.getpid(),
            "flows": [
                {
                    **flow,
                    "target": f"{SERVER_IPV4}:7700",
                    "source": None,
                    "interface": None,
                    "start_offset_ns": 0,
                    "schedule": {"type": "fixed", "gap_ns": gap_ns},
                    "stop": {"type": "duration", "duration_ns": int(duration_s * 1e9)},
                    "size": {"type": "fixed", "payload_bytes": payload},
                    "content": {"type": "zero"},
                }
            ],
            "seed": 1,
            "drain_ns": 200_000_000,
            "late_ns": 1_000_000_000,
            "missed": "send",
            "dont_fragment": False,
            "records": None,
            "realtime_priority": None,
            "send_cpu": None,
            "receive_cpu": None,
            "socket_buffer_bytes": 1 << 20,
        }
        server = self.lab.server_host.spawn(
            [self.engine, "reflect", "-"],
            name="reflect",
            stdin=json.dumps(reflect).encode(),
            lines=True,
        )
        wait_for(server, "ready", limit_s=5)
        return self.lab.client_host.spawn(
            [self.engine, "send", "-"],
            name="send",
            stdin=json.dumps(send).encode(),
            lines=True,
        )

    def mbit_s(self, msdu: int, service_us: float) -> float:
        """Saturate the client's station; return the rate of MSDUs that arrive."""
        sender = self.send(
            payload=msdu - SNAP_IP_UDP_BYTES,
            gap_ns=int(service_us * 700),
            duration_s=MEASURED_S + 1.5,
        )
        time.sleep(0.8)
        before, start = self.lab.counters(), time.monotonic()
        time.sleep(MEASURED_S)
        after, end = self.lab.counters(), time.monotonic()
        assert before is not None
        assert after is not None
        assert after.forward["queue_dropped"] > before.forward["queue_dropped"], "not saturated"
        assert after.forward["capture_dropped"] == 0
        assert after.forward["oversized"] == 0
        for way in (after.forward, after.reverse):
            ended = way["delivered"] + way["queue_dropped"] + way["lost"]
            assert way["offered"] == ended + way["in_flight"]
        sender.stop()
        frames = after.forward["delivered"] - before.forward["delivered"]
        mbit_s = frames * msdu * 8 / (end - start) / 1e6
        sys.stdout.write(f"{msdu} byte: {mbit_s:.3f} Mbit/s\n")
        return float(mbit_s)


@pytest.fixture
def wlan(request: pytest.FixtureRequest, ledger: Ledger, engine: str) -> Iterator[Line]:
    link = Wlan(WlanParams.model_validate(request.param))
    with Lab(ledger, Topology(), link.spec(1), engine=engine) as lab:
        yield Line(lab, engine)


B = {
    "standard": "802.11b",
    "basic_rates": "1",
    "four_addresses": True,
    "beacon_interval_tu": 0,
}
A = {"standard": "802.11a", "four_addresses": True, "beacon_interval_tu": 0}


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("wlan", [B], indirect=True, ids=["802.11b"])
@pytest.mark.parametrize("msdu", list(TABLE_802_11B))
def test_throughput_of_802_11b_in_real_time(wlan: Line, msdu: int) -> None:
    expected = TABLE_802_11B[msdu]
    assert wlan.mbit_s(msdu, msdu * 8 / expected) == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("wlan", [A], indirect=True, ids=["802.11a"])
@pytest.mark.parametrize("msdu", list(TABLE_802_11A))
def test_throughput_of_802_11a_in_real_time(wlan: Line, msdu: int) -> None:
    expected = TABLE_802_11A[msdu]
    assert wlan.mbit_s(msdu, msdu * 8 / expected) == pytest.approx(expected, rel=0.02)


@pytest.mark.timing
@pytest.mark.parametrize("wlan", [B], indirect=True, ids=["802.11b"])
def test_an_echo_takes_its_time_on_air_both_ways(wlan: Line) -> None:
    sender = wlan.send(payload=1000, gap_ns=20_000_000, duration_s=2.0, answer=True)
    summary = wait_for(sender, "summary", limit_s=10)
    flow = summary["flows"][0]
    assert flow["sent"] == flow["returned"] > 90
    # 192 us and 1000 + 36 + 34 bytes at 11 Mbit/s; the way back follows at once, so it may have to
    # wait for the Ack, DIFS and what is left of the backoff
    one_way = 192_000 + (1070 * 8 + 10) // 11 * 1000
    assert one_way <= flow["owd_forward_ns"]["min"] < one_way + 500_000
    assert flow["rtt_ns"]["min"] >= 2 * one_way
    assert flow["rtt_ns"]["p50"] < 2 * one_way + 314_000 + 50_000 + 31 * 20_000 + 500_000


@pytest.mark.timing
@pytest.mark.parametrize(
    "wlan",
    [{**B, "frame_errors": 0.5, "short_retry_limit": 2}],
    indirect=True,
    ids=["errors"],
)
def test_frames_given_up_are_counted_as_lost(wlan: Line) -> None:
    sender = wlan.send(payload=100, gap_ns=5_000_000, duration_s=3.0)
    wait_for(sender, "summary", limit_s=10)
    counters = wlan.lab.counters()
    assert counters is not None
    # a quarter of 600; standard deviation 10.6
    assert counters.forward["lost"] == pytest.approx(150, abs=60)
    assert counters.forward["delivered"] == pytest.approx(450, abs=60)


@pytest.mark.parametrize("name", list(Wlan.presets))
def test_every_preset_carries_packets(name: str, ledger: Ledger, engine: str) -> None:
    link = Wlan(WlanParams.model_validate(Wlan.presets[name]))
    topology = Topology(mtu_bytes=link.mtu_bytes)
    with Lab(ledger, topology, link.spec(1), engine=engine) as lab:
        done = lab.client_host.run(["ping", "-c", "5", "-i", "0.2", SERVER_IPV4])
        assert " 0% packet loss" in done.text()


def test_an_mtu_beyond_an_msdu_is_refused(ledger: Ledger, engine: str) -> None:
    spec = Wlan(WlanParams.model_validate(B)).spec(1)
    with pytest.raises(LabError, match="has an MTU of 4000, a WLAN carries at most 2296"):
        Lab(ledger, Topology(mtu_bytes=4000), spec, engine=engine)


def test_a_wrong_medium_is_refused_before_any_interface_is_touched(
    ledger: Ledger, engine: str
) -> None:
    spec = Wlan(WlanParams.model_validate(B)).spec(1)
    config = spec.to_json(
        a="tm-none-a", b="tm-none-b", parent_pid=os.getpid(), realtime_priority=None
    )
    config["medium"] = {**spec.medium, "stations": 0}
    done = LocalHost(ledger).run(
        [engine, "link", "-"], stdin=json.dumps(config).encode(), check=False
    )
    assert done.returncode == 2
    assert json.loads(done.text())["message"] == "medium.stations is 0, must be 1 to 2007"
