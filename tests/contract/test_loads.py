"""Loads of constant rate over the loopback: figures, directions, deaths, nothing left."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.model.trial import Progress
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check, Validity
from tunnelmark.workloads import rate_search
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.latency_at_rate import LatencyAtRate, LatencyAtRateParams
from tunnelmark.workloads.loads import Loaded, run_load
from tunnelmark.workloads.rate_search import RateSearch, RateSearchParams
from tunnelmark.workloads.udp_load import UdpLoad, UdpLoadParams
from tunnelmark.workloads.voip import Voip, VoipParams
from tunnelmark.workloads.voip_capacity import VoipCapacity, VoipCapacityParams

# What judges the machine and not the workload: this one may be busy with anything.
TIMING = ("sender_lateness", "reply_lateness")


def load(**values: object) -> UdpLoad:
    base = {"payload_bytes": 100, "packet_rate": 500, "duration": "100 ms", "drain": "200 ms"}
    return UdpLoad(UdpLoadParams.model_validate({**base, **values}))


def latency(**values: object) -> LatencyAtRate:
    base = {"payload_bytes": 100, "throughput": "400 kbit/s", "duration": "100 ms"}
    params = {**base, "drain": "200 ms", **values}
    return LatencyAtRate(LatencyAtRateParams.model_validate(params))


def search(**values: object) -> RateSearch:
    base = {"payload_bytes": 100, "reference": "100 kbit/s", "trial": "200 ms", "drain": "50 ms"}
    return RateSearch(RateSearchParams.model_validate({**base, **values}))


def voip(**values: object) -> Voip:
    base = {"duration": "100 ms", "drain": "200 ms", "calls": 2}
    return Voip(VoipParams.model_validate({**base, **values}))


def capacity(**values: object) -> VoipCapacity:
    base = {"duration": "100 ms", "drain": "50 ms", "most_calls": 5, "jitter_buffer": "900 ms"}
    return VoipCapacity(VoipCapacityParams.model_validate({**base, **values}))


def length(make: object) -> dict[str, str]:
    return {"trial": "60 s"} if make is search else {"duration": "60 s"}


def verdict(outcome: Outcome) -> Validity:
    return Validity(tuple(c for c in outcome.checks if not c.name.startswith(TIMING)))


def total(outcome: Outcome) -> dict[str, Any]:
    (measurement,) = [m for m in outcome.measurements if m.path == "total"]
    return dict(measurement.metrics)


def left(context: TrialContext) -> list[str]:
    return [
        path.name
        for host in (context.client, context.server)
        for path in Path(host.work_dir).rglob("*.rec")
    ]


@pytest.mark.parametrize(
    ("direction", "arrivals"), [("forward", 50), ("reverse", 50), ("both", 100), ("echo", 100)]
)
def test_every_packet_arrives_in_its_direction(
    context: TrialContext, direction: str, arrivals: int
) -> None:
    outcome = load(direction=direction).run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert any(check.name.startswith(TIMING) for check in outcome.checks)
    assert outcome.payload_packets == arrivals
    assert outcome.payload_bytes == 100 * arrivals
    figures = total(outcome)
    assert set(figures) <= set(UdpLoad.metrics)
    assert figures["offered_packet_s"] == 500
    forward = figures.get("loss_forward_ratio"), figures.get("received_forward_packet_s") or 0
    reverse = figures.get("loss_reverse_ratio"), figures.get("received_reverse_packet_s") or 0
    assert (forward[0] == 0.0, forward[1] > 0) == (direction != "reverse",) * 2
    assert (reverse[0] == 0.0) == (direction != "forward")
    assert (reverse[1] > 0) == (direction in {"reverse", "both"})
    assert (figures.get("rtt_p50_ns") is not None) == (direction == "echo")
    assert left(context) == []


def test_both_directions_keep_their_records_apart(context: TrialContext) -> None:
    outcome = load(direction="both").run(context)
    assert context.samples_dir is not None
    assert len(outcome.samples) == len(set(outcome.samples)) == 4
    assert {path.name for path in context.samples_dir.iterdir()} == set(outcome.samples)


def test_paths_have_figures_of_their_own(
    context: TrialContext, loopback_path: Callable[[int], TrafficPath]
) -> None:
    context = replace(context, paths=tuple(map(loopback_path, range(3))))
    outcome = load(share="each", direction="both").run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert [m.path for m in outcome.measurements] == ["total", "0", "1", "2"]
    assert outcome.payload_packets == 2 * 3 * 50


def test_delay_at_a_rate_derived_from_the_throughput(context: TrialContext) -> None:
    outcome = latency().run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    figures = total(outcome)
    assert set(figures) == set(LatencyAtRate.metrics)
    assert figures["offered_packet_s"] == 500
    assert 0 < figures["rtt_min_ns"] <= figures["rtt_p50_ns"]
    assert figures["rtt_p99_ns"] is None, "fewer than 300 answers have no 99th percentile"


@pytest.mark.parametrize("method", ["mlrsearch", "binary"])
def test_the_loopback_carries_all_that_is_asked_for(context: TrialContext, method: str) -> None:
    # Late senders are the machine's fault: this test is about the search.
    context = replace(context, lateness_floor_ns=10**12)
    outcome = search(method=method, loss="1 %").run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    figures = total(outcome)
    assert set(figures) == set(RateSearch.metrics)
    # 100 kbit/s of IP packets of 128 bytes, and a tenth more.
    assert figures["throughput_lower_packet_s"] == pytest.approx(107.4, rel=0.3)
    assert figures["throughput_lower_packet_s"] <= 107.5
    assert figures["throughput_upper_packet_s"] is None
    trials = outcome.details["trials"]
    assert isinstance(trials, list)
    repeated = outcome.details["repeated"]
    assert isinstance(repeated, int)
    assert figures["search_trials"] == len(trials) + repeated
    # A goal of 1 % cannot be seen with fewer packets.
    assert all(trial["sent"] >= 100 for trial in trials)
    assert left(context) == []


@pytest.mark.parametrize("host", ["client", "server"])
@pytest.mark.parametrize("make", [load, latency, search, voip, capacity])
def test_a_process_that_is_killed_is_a_failed_check(
    context: TrialContext, make: Callable[..., Workload], host: str
) -> None:
    pids: dict[str, int] = {}

    def progress(_progress: Progress) -> None:
        if host in pids:
            os.kill(pids.pop(host), signal.SIGKILL)

    def measuring(name: str, pid: int) -> None:
        pids.setdefault(name, pid)

    context = replace(context, progress=progress, measuring_processes=measuring)
    outcome = make(**length(make)).run(context)
    assert not verdict(outcome).valid
    assert any(
        words in reason
        for reason in verdict(outcome).reasons
        for words in ("reflector (reflect) died", "sender (send) ended")
    )
    assert left(context) == []


@pytest.mark.parametrize("make", [load, latency, search, voip, capacity])
def test_an_interrupted_trial_ends_early(
    context: TrialContext, make: Callable[..., Workload]
) -> None:
    reported: list[Progress] = []
    context = replace(context, progress=reported.append, cancelled=lambda: bool(reported))
    outcome = make(**length(make)).run(context)
    assert not verdict(outcome).valid
    assert any("ended early" in reason for reason in verdict(outcome).reasons)
    assert left(context) == []


def test_calls_are_heard_both_ways(
    context: TrialContext, loopback_path: Callable[[int], TrafficPath]
) -> None:
    context = replace(context, paths=tuple(map(loopback_path, range(2))))
    outcome = voip(calls=3, jitter_buffer="900 ms").run(context)
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert [m.path for m in outcome.measurements] == ["total", "0", "1"]
    # Three calls, two ways, a packet of 172 bytes every 20 ms.
    assert outcome.payload_packets == 3 * 2 * 5
    assert outcome.payload_bytes == 30 * 172
    figures = total(outcome)
    assert set(figures) == set(Voip.metrics)
    assert figures["loss_forward_ratio"] == figures["loss_reverse_ratio"] == 0
    assert 1 < figures["voip_mos_min"] <= figures["voip_mos_p50"] < 4.5
    assert left(context) == []


def test_a_trial_of_a_search_that_is_repeated_is_spent_too(
    context: TrialContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Check("sender_lateness", ok=False, message="packets left late")
    seen: list[Loaded] = []

    def first_is_late(*args: Any, **named: Any) -> Loaded:
        loaded = run_load(*args, **named)
        seen.append(loaded)
        if len(seen) > 1:
            return loaded
        assert loaded.forward is not None
        return replace(loaded, forward=replace(loaded.forward, checks=(late,)))

    monkeypatch.setattr(rate_search, "run_load", first_is_late)
    outcome = search(loss="1 %").run(replace(context, lateness_floor_ns=10**12))
    figures, trials = total(outcome), outcome.details["trials"]
    assert isinstance(trials, list)
    assert figures["search_trials"] == len(seen) == len(trials) + 1
    planned_s = sum(trial["duration_s"] for trial in trials)
    assert figures["search_s"] == pytest.approx(planned_s + trials[0]["duration_s"])


def test_the_loopback_carries_all_calls(context: TrialContext) -> None:
    # A goal that a delay of 900 ms reaches: this test is about the search.
    outcome = capacity(mos=1).run(replace(context, lateness_floor_ns=10**12))
    assert verdict(outcome).valid, verdict(outcome).reasons
    figures = total(outcome)
    assert set(figures) == set(VoipCapacity.metrics)
    assert figures["voip_calls"] == 5
    assert figures["voip_calls_over"] is None
    assert figures["search_trials"] == 4


def test_no_call_reaches_a_goal_beyond_reach(context: TrialContext) -> None:
    outcome = capacity(mos=4.45).run(replace(context, lateness_floor_ns=10**12))
    assert verdict(outcome).valid, verdict(outcome).reasons
    assert total(outcome)["voip_calls"] == 0
    assert total(outcome)["voip_calls_over"] == 1


def test_a_load_that_is_no_longer_wanted_ends_in_order(context: TrialContext) -> None:
    reported: list[Progress] = []
    context = replace(context, progress=reported.append, enough=lambda: bool(reported))
    outcome = load(duration="60 s", direction="echo").run(context)
    assert verdict(outcome).reasons == ()
    assert 0 < outcome.payload_packets < 60_000
    assert left(context) == []
