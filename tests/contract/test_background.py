"""Loads beside a workload over the loopback: both run, both are counted, nothing is left."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Progress
from tunnelmark.model.validity import Validity
from tunnelmark.workloads.background import Load, run_beside
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.bursts import Bursts, BurstsParams
from tunnelmark.workloads.latency_under_load import LatencyUnderLoad, LatencyUnderLoadParams
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

# What judges the machine and not the workload: this one may be busy with anything.
TIMING = ("sender_lateness", "reply_lateness")


def bursts(**values: object) -> Bursts:
    base = {"packet_rate": 1000, "duration": "60 s", "ports": [8080, 8021], "off_max": "1 s"}
    return Bursts(BurstsParams.model_validate({**base, **values}))


def echo(**values: object) -> UdpEcho:
    base = {"gap": "5 ms", "packets": 60, "payload_bytes": 64, "drain": "500 ms"}
    return UdpEcho(UdpEchoParams.model_validate({**base, **values}))


def verdict(outcome: Outcome) -> Validity:
    return Validity(tuple(c for c in outcome.checks if not c.name.startswith(TIMING)))


def total(outcome: Outcome) -> dict[str, Any]:
    (measurement,) = [m for m in outcome.measurements if m.path == "total"]
    assert set(measurement.metrics) <= set(METRICS)
    return dict(measurement.metrics)


def left(context: TrialContext) -> list[str]:
    return [
        path.name
        for host in (context.client, context.server)
        for path in Path(host.work_dir).rglob("*.rec")
    ]


def reported(outcome: Outcome, label: str) -> dict[str, Any]:
    background = outcome.details["background"]
    assert isinstance(background, dict)
    found = background[label]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("direction", ["forward", "both", "echo"])
def test_bursts_alone_are_a_workload(context: TrialContext, direction: str) -> None:
    outcome = bursts(duration="300 ms", direction=direction).run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert set(total(outcome)) <= set(Bursts.metrics)
    # All ports begin with a burst of a second at least: 300 packets in 300 ms each way.
    ways = 1 if direction == "forward" else 2
    assert outcome.payload_packets == pytest.approx(300 * ways, abs=4 * ways)
    assert outcome.payload_bytes / outcome.payload_packets == pytest.approx(762, rel=0.15)
    assert left(context) == []


def test_a_load_runs_beside_a_workload_until_that_ends(context: TrialContext) -> None:
    loads = [Load("office", bursts(), outside=False), Load("web", bursts(ports=[80]), outside=True)]
    beside = replace(context, outside=context.paths)
    outcome = run_beside(beside, loads, echo().run)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert {"background_office", "background_web"} <= {check.name for check in outcome.checks}
    office, web = reported(outcome, "office"), reported(outcome, "web")
    assert (office["path"], web["path"]) == ("inside", "outside")
    assert office["payload_packets"] > 0
    assert web["payload_packets"] > 0
    assert len(office["runs"]) == 1
    # What went through the tunnel counts for its cost, what went beside it does not.
    assert outcome.payload_packets == 120 + office["payload_packets"]
    # The link carried both.
    assert outcome.outside_packets == web["payload_packets"]
    assert outcome.outside_bytes == web["payload_bytes"]
    figures = total(outcome)
    assert figures["background_packet_s"] > 0
    assert figures["rtt_p50_ns"] > 0
    assert left(context) == []


def test_a_load_that_ends_by_itself_begins_anew(context: TrialContext) -> None:
    loads = [Load("short", echo(packets=10, gap="1 ms", drain="1 ms"), outside=False)]
    outcome = run_beside(context, loads, echo(packets=400).run)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert len(reported(outcome, "short")["runs"]) > 1
    assert left(context) == []


@pytest.mark.parametrize("host", ["client", "server"])
def test_a_load_that_dies_fails_the_trial(context: TrialContext, host: str) -> None:
    main: list[int] = []
    context = replace(context, measuring_processes=lambda _host, pid: main.append(pid))
    machine = context.client if host == "client" else context.server

    def progress(_progress: Progress) -> None:
        for process in machine.spawned:  # type: ignore[attr-defined]  # a LocalHost has it
            if process.pid not in main and process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)

    outcome = run_beside(
        replace(context, progress=progress),
        [Load("office", bursts(), outside=False)],
        echo(packets=400).run,
    )
    reasons = verdict(outcome).reasons
    assert len(reasons) == 1, reasons
    assert reasons[0].startswith("background office: ")
    assert left(context) == []


def test_a_load_that_cannot_begin_fails_the_trial(context: TrialContext) -> None:
    # Both take the same ports.
    loads = [Load("one", bursts(), outside=False), Load("two", bursts(), outside=False)]
    outcome = run_beside(context, loads, echo().run)
    reasons = verdict(outcome).reasons
    assert len(reasons) == 1, reasons
    assert "80" in reasons[0]
    assert left(context) == []


def latency() -> LatencyUnderLoad:
    values = {"gap": "5 ms", "idle": "200 ms", "settle": "100 ms", "loaded": "300 ms"}
    return LatencyUnderLoad(LatencyUnderLoadParams.model_validate(values))


def test_delay_idle_and_under_load(context: TrialContext) -> None:
    loads = [Load("office", bursts(), outside=False)]
    context = replace(context, beside=lambda job: run_beside(context, loads, job))
    outcome = latency().run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    figures = total(outcome)
    assert set(figures) == set(LatencyUnderLoad.metrics)
    assert figures["load_added_rtt_ns"] == figures["loaded_rtt_p50_ns"] - figures["idle_rtt_p50_ns"]
    assert figures["background_packet_s"] > 0
    assert "processes_idle" in {check.name for check in outcome.checks}
    assert len(outcome.samples) == len(set(outcome.samples)) == 4
    assert left(context) == []


def test_delay_under_no_load_is_refused(context: TrialContext) -> None:
    outcome = latency().run(context)
    assert verdict(outcome).reasons == ("latency_under_load needs a [[background]]",)


def test_an_interrupted_trial_ends_its_loads(context: TrialContext) -> None:
    seen: list[Progress] = []
    context = replace(context, progress=seen.append, cancelled=lambda: bool(seen))
    outcome = run_beside(
        context, [Load("office", bursts(), outside=False)], echo(packets=100_000).run
    )
    assert not verdict(outcome).valid
    assert left(context) == []
