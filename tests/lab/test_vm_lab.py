"""The same lab in a machine, and with a machine per endpoint: a link that does as configured."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
import pytest

from places import Places
from small_study import LOOSE_VALIDITY
from tunnelmark.devices.registry import DEVICES
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts import vm_payload
from tunnelmark.hosts.cgroup import Quota, busiest_since, find_controller, quota_of
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.vm import VmHost
from tunnelmark.hosts.vm_accel import choose
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.lab.benchmarks import Bench, Goal
from tunnelmark.lab.calibrate import Calibration
from tunnelmark.lab.devices import MachineLimit, machine_specs
from tunnelmark.lab.endpoints import EndpointMachinesPlace
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import Place
from tunnelmark.model.block import Stratum
from tunnelmark.model.topology import CLIENT_IPV4, SERVER_IPV4, SERVER_IPV6, Topology
from tunnelmark.model.trial import DriverSpec
from tunnelmark.probes.cpu import CpuProbe
from tunnelmark.vmimage.cache import Image

pytestmark = [pytest.mark.lab, pytest.mark.machine]

DELAY_NS = 20_000_000
LINK = LinkSpec(
    a_to_b=Direction(rate_bit_s=8_000_000, delay_ns=DELAY_NS, queue=Queue("bytes", 65536)),
    b_to_a=Direction(rate_bit_s=8_000_000, delay_ns=DELAY_NS, queue=Queue("bytes", 65536)),
    seed=1,
)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


def check_lab(ledger: Ledger, place: Place, engine: str) -> None:
    """The link carries what theory says, both ways and versions of IP, and counts every frame."""
    with Lab(ledger, Topology(), LINK, engine=engine, place=place) as lab:
        for address in (SERVER_IPV4, SERVER_IPV6):
            ping = ["ping", "-c", "5", "-i", "0.1", "-W", "5", "-q", address]
            text = lab.client_host.run(ping, timeout_s=20).text()
            assert " 0% packet loss" in text
            fastest_ms = float(text.rpartition("= ")[2].split("/")[0])
            # Twice the delay, and an emulated CPU's own: never less, and not twice as much.
            assert 2 * DELAY_NS / 1e6 <= fastest_ms < 4 * DELAY_NS / 1e6
        counters = lab.counters()
        assert counters is not None
        for one in (counters.forward, counters.reverse):
            # Ten pings, and some multicast reports of an interface that has just come up; one of
            # these may be under way.
            assert one["offered"] == one["delivered"] + one["in_flight"]
            assert 10 <= one["delivered"] < 20
            assert one["queue_dropped"] == one["lost"] == 0
        assert lab.problem() is None
        check_engine(lab)
        longest = ["ping", "-c", "3", "-i", "0.1", "-W", "5", "-s", "1472", "-q", SERVER_IPV4]
        assert " 0% packet loss" in lab.client_host.run(longest, timeout_s=20).text()
        for host in (lab.client_host, lab.server_host):
            assert host.run(["ip", "route", "show", "default"]).text() == ""
            features = host.run(["ethtool", "-k", "eth0"]).text()
            for name in ("tcp-segmentation-offload", "generic-receive-offload"):
                assert f"{name}: off" in features
        (emulator,) = lab.emulators
        emulator.kill()
        emulator.wait(10)
        assert "the link emulator ended" in str(lab.problem())


def check_engine(lab: Lab) -> None:
    """Packets of the engine go there and back, and the probe sees who used CPU."""
    key = "000102030405060708090a0b0c0d0e0f"
    target = f"{SERVER_IPV4}:7700"
    reflect = {
        "protocol": 2,
        "parent_pid": lab.place.owner_pid,
        "listen": [target],
        "sessions": [{"flow": 0, "session": 1, "key": key}],
        "records": None,
        "realtime_priority": None,
        "cpu": None,
        "socket_buffer_bytes": 1 << 20,
    }
    send = {
        "protocol": 2,
        "parent_pid": lab.place.owner_pid,
        "flows": [
            {
                "flow": 0,
                "session": 1,
                "key": key,
                "target": target,
                "source": f"{CLIENT_IPV4}:0",
                "interface": "eth0",
                "start_offset_ns": 0,
                "schedule": {"type": "fixed", "gap_ns": 5_000_000},
                "stop": {"type": "packets", "packets": 200},
                "size": {"type": "fixed", "payload_bytes": 1000},
                "content": {"type": "random"},
            }
        ],
        "seed": 1,
        "drain_ns": 1_000_000_000,
        "late_ns": 1_000_000_000,
        "missed": "send",
        "dont_fragment": False,
        "records": None,
        "realtime_priority": None,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": 1 << 20,
    }
    reflector = lab.server_host.spawn(
        [lab.place.engine, "reflect", "-"],
        name="reflect",
        stdin=json.dumps(reflect).encode(),
        lines=True,
    )
    assert '"ready"' in (reflector.read_line(20) or "")
    groups = {"server": [reflector.pid], "link": [one.pid for one in lab.emulators]}
    probe = CpuProbe(lambda: groups, lab.place.cpu)
    probe.start(0)
    done = lab.client_host.run(
        [lab.place.engine, "send", "-"], stdin=json.dumps(send).encode(), timeout_s=60
    )
    usage = probe.stop(1_000_000_000)
    summary = json.loads(done.text().splitlines()[-1])
    (flow,) = summary["flows"]
    assert (flow["sent"], flow["returned"]) == (200, 200)
    assert flow["rtt_ns"]["min"] >= 2 * DELAY_NS, flow
    # The watched process is the right one: nobody ended early, everybody worked.
    assert reflector.poll() is None
    assert usage.groups["server"].run_s > 0
    assert usage.groups["link"].run_s > 0
    assert usage.machine_ratio is not None
    assert usage.machine_ratio > 0
    reflector.stop()


def test_a_lab_inside_one_machine(ledger: Ledger, places: Places) -> None:
    facts = places.placement.machine_host().machine.facts
    place = places.machine()
    assert (place.stratum is Stratum.EMULATED) == facts.emulated
    assert facts.kernel in place.placed_on
    for _ in range(2):  # labs come and go in one machine
        check_lab(ledger, place, "unused")


def test_a_machine_per_endpoint(ledger: Ledger, image: Image, payload: Payload) -> None:
    engine = str(payload.programs[vm_payload.ENGINE])
    place = EndpointMachinesPlace(
        ledger, engine=engine, image=image, payload=payload, choice=choose(image)
    )
    check_lab(ledger, place, engine)
    assert len(place.machines) == 2
    assert not any(machine.alive() for machine in place.machines.values())


@pytest.mark.slow
def test_a_machine_on_a_device_joined_directly(
    ledger: Ledger, image: Image, payload: Payload
) -> None:
    controller = find_controller()
    engine = str(payload.programs[vm_payload.ENGINE])
    device = DEVICES["pi-2"]
    made: list[MachineLimit] = []

    def calibrated(bench: Bench, limit: Callable[[Quota | None], None]) -> Calibration:
        limit(None)
        done = bench(["true"], {}, 30.0)
        assert done.returncode == 0
        return Calibration(device, Goal("SHA1"), quota_of(0.2), {}, {}, 1.0)

    def limits(hosts: Mapping[str, VmHost]) -> dict[str, MachineLimit]:
        host = hosts["client"]
        made.append(
            MachineLimit(ledger, controller, "client", device, host.machine, calibrated, host)
        )
        return {"client": made[0]}

    spec = DriverSpec("pi-2", "pi-2", {})
    place = EndpointMachinesPlace(
        ledger,
        engine=engine,
        image=image,
        payload=payload,
        choice=choose(image),
        specs=machine_specs(spec),
        limits=limits,
    )
    # Without a link the machines are joined directly.
    with Lab(ledger, Topology(), None, engine=engine, place=place) as lab:
        done = lab.client_host.run(["ping", "-c", "3", "-i", "0.1", "-W", "5", SERVER_IPV4])
        assert " 0% packet loss" in done.text()
        assert lab.counters() is None
        (limit,) = made
        assert limit.capacity == pytest.approx(0.8)
        assert lab.client_host.run(["nproc"]).text().strip() == "4"
        flags = lab.client_host.run(["cat", "/proc/cpuinfo"]).text()
        assert " aes " not in flags
        assert " aes " in lab.server_host.run(["cat", "/proc/cpuinfo"]).text()
        before, ran = limit.throttled(), limit.run_ns()
        # A fixed amount of work, more than one period's worth of CPU.
        lab.client_host.run(
            ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"], timeout_s=120
        )
        assert busiest_since(limit.throttled(), before).throttled > 0
        assert limit.run_ns() > ran
    assert not (controller.root / f"{ledger.run_id}-client").exists()


STUDY = f"""
format = 1
name = "machine"
title = "In a machine"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "90 %"
min_repeats = 1
max_repeats = 1
bring_ups = 1

{LOOSE_VALIDITY}
[[tunnel]]
kind = "wireguard"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20.5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 250
payload_bytes = 512
"""


@pytest.mark.slow
@pytest.mark.usefixtures("image")
def test_a_study_in_a_machine(study: Callable[[str], Any]) -> None:
    one = study(STUDY)
    one.start(str(one.file), "--place", "machine")
    # A busy computer makes an emulated sender late: such trials are invalid, and no failure here.
    assert one.finish() in {0, 6}, one.errors
    (block,) = [json.loads(path.read_text()) for path in one.directory.glob("blocks/*.json")]
    assert block["error"] is None
    assert block["placed_on"].startswith("network namespaces of a machine with Linux 6.")
    assert {end["implementation"] for end in block["negotiated"]} == {"kernel"}
    assert all(
        proof["verdict"] == "proved" for proof in (*block["proofs"], *block["baseline_proofs"])
    )
    outer = {s["payload_bytes"]: s["outer_packet_bytes"] for s in block["proofs"][0]["samples"]}
    # 512 bytes, UDP and IPv4 inside: 540, padded to 544; WireGuard 32, UDP 8, IPv4 20 outside.
    assert outer[512] == [604]
    # Trials were made, counted and judged inside: CPU is the guest's, packets came back.
    trials = one.trials().filter(pl.col("path") == "total")
    assert len(trials) >= 2
    # The sender runs for longer than a second, so that it is seen while it runs.
    assert trials["cpu_client_ratio"].null_count() == 0
    assert trials["cpu_client_ratio"].min() > 0
    assert trials["loss_forward_ratio"].max() == 0
    assert trials["rtt_min_ns"].min() > 41_000_000
