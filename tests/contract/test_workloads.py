"""Every workload keeps what ``workloads/base.py`` promises; UDP echo runs over the loopback."""

import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.engine import records
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.params import Params
from tunnelmark.model.trial import Progress
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Validity
from tunnelmark.workloads.base import FIRST_PORT, Outcome, TrialContext
from tunnelmark.workloads.registry import workload_kinds
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams, plan_flows

KINDS = workload_kinds()

# What judges the machine and not the workload: this one may be busy with anything.
TIMING = {"sender_lateness", "reply_lateness"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_says_what_it_is(kind: str) -> None:
    driver = KINDS[kind]
    assert driver.kind == kind
    assert driver.title
    assert issubclass(driver.params_type, Params)
    assert driver.metrics
    assert set(driver.metrics) <= set(METRICS)
    assert len(set(driver.metrics)) == len(driver.metrics)
    for name, field in driver.params_type.model_fields.items():
        assert field.description, f"{kind}.{name} has no description"


def test_the_echo_is_there() -> None:
    assert KINDS["udp_echo"] is UdpEcho


def echo(**values: object) -> UdpEcho:
    params = {"gap": "2 ms", "packets": 30, "payload_bytes": 200, "drain": "500 ms", **values}
    return UdpEcho(UdpEchoParams.model_validate(params))


def verdict(outcome: Outcome) -> Validity:
    return Validity(tuple(check for check in outcome.checks if check.name not in TIMING))


def total(outcome: Outcome) -> dict[str, Any]:
    (measurement,) = [m for m in outcome.measurements if m.path == "total"]
    return dict(measurement.metrics)


def left(context: TrialContext) -> list[str]:
    return [
        path.name
        for host in (context.client, context.server)
        for path in Path(host.work_dir).rglob("*.rec")
    ]


@pytest.mark.timing
def test_every_packet_comes_back_over_the_loopback(context: TrialContext) -> None:
    outcome = echo().run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert {check.name for check in outcome.checks} >= TIMING
    figures = total(outcome)
    assert set(figures) == set(UdpEcho.metrics)
    assert figures["loss_forward_ratio"] == 0.0
    assert figures["loss_reverse_ratio"] == 0.0
    assert 0 < figures["rtt_min_ns"] <= figures["rtt_p50_ns"]
    assert figures["rtt_p99_ns"] is None, "fewer than 300 answers have no 99th percentile"
    assert figures["owd_forward_p50_ns"] > 0
    assert figures["owd_reverse_p50_ns"] > 0
    assert outcome.payload_packets == 60
    assert outcome.payload_bytes == 60 * 200
    # Thirty packets 2 ms apart last at least 60 ms, however late the machine was.
    assert outcome.measuring_s == pytest.approx(29 * 0.002 + 0.002, rel=0.5)
    assert figures["sent_load_bit_s"] == pytest.approx(200 * 8 / 0.002, rel=0.5)
    assert left(context) == []


def test_the_records_that_are_kept_are_those_of_the_figures(context: TrialContext) -> None:
    outcome = echo().run(context)
    assert context.samples_dir is not None
    assert outcome.samples == ("trial-1.send.rec", "trial-1.reflect.rec")
    send, reflect = ((context.samples_dir / name).read_bytes() for name in outcome.samples)
    joined = records.join(records.read_send(send, "s"), records.read_reflect(reflect, "r"), 0)
    assert len(joined.sent_ns) == 30
    assert (joined.sent_ns < joined.arrived_ns).all()
    assert (joined.arrived_ns <= joined.answered_ns).all()
    assert (joined.answered_ns < joined.returned_ns).all()
    assert min(joined.rtt_ns) == total(outcome)["rtt_min_ns"]


def test_without_samples_nothing_is_kept(context: TrialContext) -> None:
    outcome = echo().run(replace(context, samples_dir=None))
    assert verdict(outcome).valid
    assert outcome.samples == ()
    assert left(context) == []


@pytest.mark.parametrize(("load", "packets"), [("spread", [11, 10, 10]), ("each", [31, 31, 31])])
def test_several_paths_share_the_load_or_have_it_each(
    context: TrialContext,
    loopback_path: Callable[[int], TrafficPath],
    load: str,
    packets: list[int],
) -> None:
    context = replace(context, paths=tuple(loopback_path(number) for number in range(3)))
    outcome = echo(load=load, packets=31).run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert [m.path for m in outcome.measurements] == ["total", "0", "1", "2"]
    reported = outcome.details["send"]
    assert isinstance(reported, dict)
    assert [flow["sent"] for flow in reported["flows"]] == packets
    assert outcome.payload_packets == 2 * sum(packets)


@pytest.mark.parametrize("content", ["zero", "random", "repeat", "compressible"])
@pytest.mark.parametrize("payload_bytes", [25, 65507])
def test_every_content_and_size_goes_there_and_back(
    context: TrialContext, content: str, payload_bytes: int
) -> None:
    outcome = echo(content=content, payload_bytes=payload_bytes, packets=5).run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert outcome.payload_bytes == 10 * payload_bytes


def test_a_trial_that_is_cancelled_ends_early_with_what_it_has(context: TrialContext) -> None:
    reported: list[Progress] = []
    context = replace(context, progress=reported.append, cancelled=lambda: bool(reported))
    outcome = echo(packets=100_000).run(context)
    assert not verdict(outcome).valid
    assert any("ended early" in reason for reason in verdict(outcome).reasons)
    assert total(outcome)["rtt_p50_ns"] > 0
    assert 0 < outcome.payload_packets < 200_000
    assert left(context) == []


def killing(context: TrialContext, host: str) -> tuple[TrialContext, Callable[[], None]]:
    """Return a context that kills the process on a host at the first sign of progress."""
    pids: dict[str, int] = {}
    done = threading.Event()

    def progress(_progress: Progress) -> None:
        if not done.is_set():
            done.set()
            os.kill(pids[host], signal.SIGKILL)

    def measuring(name: str, pid: int) -> None:
        pids[name] = pid

    def check() -> None:
        assert done.is_set()

    return replace(context, progress=progress, measuring_processes=measuring), check


def test_a_reflector_that_is_killed_is_a_failed_check(context: TrialContext) -> None:
    context, killed = killing(context, "server")
    outcome = echo(packets=100_000).run(context)
    killed()
    assert not verdict(outcome).valid
    assert any("reflector (reflect) died" in reason for reason in verdict(outcome).reasons)
    assert left(context) == []


@pytest.mark.parametrize("stopped_s", [0.2, 1.0], ids=["shorter than the drain", "longer"])
def test_a_reflector_that_holds_replies_is_a_failed_check(
    context: TrialContext, stopped_s: float
) -> None:
    pids: dict[str, int] = {}
    hold: list[threading.Timer] = []

    def progress(_progress: Progress) -> None:
        if not hold:
            os.kill(pids["server"], signal.SIGSTOP)
            hold.append(threading.Timer(stopped_s, os.kill, (pids["server"], signal.SIGCONT)))
            hold[0].start()

    context = replace(context, progress=progress, measuring_processes=pids.__setitem__)
    outcome = echo(packets=400, drain="400 ms").run(context)
    (timer,) = hold
    timer.join()
    failed = {check.name for check in outcome.checks if not check.ok}
    assert failed - {"sender_lateness"} == {"reply_lateness"}


def test_a_sender_that_is_killed_is_a_failed_check(context: TrialContext) -> None:
    context, killed = killing(context, "client")
    outcome = echo(packets=100_000).run(context)
    killed()
    assert not verdict(outcome).valid
    assert any("sender (send) ended" in reason for reason in verdict(outcome).reasons)
    assert left(context) == []


def test_a_port_that_is_taken_is_a_failed_check(context: TrialContext) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as blocker:
        blocker.bind((context.paths[0].server_address, FIRST_PORT))
        outcome = echo().run(context)
    assert not verdict(outcome).valid
    assert any(str(FIRST_PORT) in reason for reason in verdict(outcome).reasons)


def test_sessions_come_from_the_seed_and_none_is_shared(
    context: TrialContext, loopback_path: Callable[[int], TrafficPath]
) -> None:
    context = replace(context, paths=tuple(loopback_path(number) for number in range(20)))
    params = UdpEchoParams.model_validate({"gap": "1 ms", "packets": 20, "payload_bytes": 25})
    sessions = [flow.session for flow in plan_flows(params, context)]
    assert sessions == [flow.session for flow in plan_flows(params, context)]
    others = [flow.session for flow in plan_flows(params, replace(context, seed=2))]
    keys = {session.key for session in (*sessions, *others)}
    assert len(keys) == len({session.session for session in (*sessions, *others)}) == 40
    assert not any(key in repr(sessions) for key in keys)
