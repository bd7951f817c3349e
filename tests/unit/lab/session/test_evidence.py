"""What the run says of a trial: CPU, link, tunnel; each limit from both sides."""

from dataclasses import replace
from typing import Any

import pytest

from tunnelmark.hosts.cgroup import Throttled
from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session import evidence
from tunnelmark.lab.session.awake import Awake
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.rules import Limits
from tunnelmark.model.trial import Measurement
from tunnelmark.model.validity import Check, Validity
from tunnelmark.probes.carried import fairness
from tunnelmark.probes.cpu import TICKS_PER_S, CoreTicks, CpuSecond, CpuUsage, GroupUsage

LIMITS = Limits()


def usage(
    *,
    steal: int = 0,
    sender_s: float = 0.1,
    tunnel_s: float = 0.5,
    wait_s: float | None = None,
    others_s: float | None = 0.0,
) -> CpuUsage:
    cores = (CoreTicks(user=30, system=10, softirq=5, steal=steal, idle=155 - steal, clock_s=2.0),)
    groups = {
        "client": GroupUsage(tunnel_s / 2 + sender_s, 0.1, 0.1),
        "server": GroupUsage(tunnel_s / 2, 0.1, 0.1),
        "tunnel": GroupUsage(tunnel_s, 0.1, 0.1, wait_s, tunnel_s / 2),
        "measuring client": GroupUsage(sender_s, 0.1, 0.1),
    }
    return CpuUsage(2.0, groups, cores, others_s=others_s, own_s=0.01)


def late(tail: int) -> dict[str, int]:
    return {"p90": 50_000, "tail": tail}


def direction(**changes: Any) -> dict[str, Any]:
    return {
        "offered": 110,
        "offered_bytes": 110 * 114,
        "delivered": 100,
        "delivered_bytes": 100 * 114,
        "queue_dropped": 4,
        "lost": 5,
        "in_flight": 1,
        "capture_dropped": 0,
        "send_errors": 0,
        "oversized": 0,
        "checksum_missing": 0,
        "lateness_ns": {"p99": 90_000_000},
        "lateness_recent_ns": late(100_000),
        **changes,
    }


ZERO = dict.fromkeys(direction(), 0) | {"lateness_ns": None, "lateness_recent_ns": None}
BEFORE = LinkCounters(ZERO, ZERO)


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def link(**changes: Any) -> list[str]:
    after = LinkCounters(direction(**changes), direction())
    return failed(evidence.link_checks(BEFORE, after, None, LIMITS))


def test_a_quiet_machine_passes() -> None:
    assert failed(evidence.cpu_checks(usage(), LIMITS, measuring_s=1.0)) == []
    assert link() == []
    assert evidence.tunnel_check(None).ok


def test_stolen_time_and_a_busy_sender_are_seen() -> None:
    assert failed(evidence.cpu_checks(usage(steal=10), LIMITS, measuring_s=1.0)) == []
    assert failed(evidence.cpu_checks(usage(steal=11), LIMITS, measuring_s=1.0)) == ["steal"]
    busy = evidence.cpu_checks(usage(sender_s=0.91), LIMITS, measuring_s=1.0)
    assert failed(busy) == ["measuring_client"]
    assert failed(evidence.cpu_checks(usage(sender_s=0.9), LIMITS, measuring_s=1.0)) == []
    loose = Limits(measuring_cpu="100 %", steal="100 %")
    assert failed(evidence.cpu_checks(usage(steal=99, sender_s=0.95), loose, measuring_s=1)) == []


@pytest.mark.parametrize(
    ("wait_s", "others_s", "found"),
    [
        # All cores were busy for 0.45 s; 73 % of it were others.
        (0.13, 0.33, []),
        (0.14, 0.33, ["starvation"]),
        # The same waiting, and nothing ran that was not the lab's, or the kernel's for it: the
        # device is used up.
        (0.9, 0.0, []),
        (None, 0.33, []),
        # Programs outside the lab are not seen: 0.27 s of 0.45 may be theirs, and no more.
        (0.16, None, []),
        (0.17, None, ["starvation"]),
    ],
)
def test_waiting_for_what_others_hold_spoils_a_trial_and_waiting_for_oneself_does_not(
    wait_s: float | None, others_s: float | None, found: list[str]
) -> None:
    seen = usage(wait_s=wait_s, tunnel_s=0.1, sender_s=0.02, others_s=others_s)
    assert failed(evidence.cpu_checks(seen, LIMITS, measuring_s=1.0)) == found


def test_a_tunnel_that_uses_up_the_cores_waits_for_itself_though_others_are_not_seen() -> None:
    seen = usage(wait_s=0.9, tunnel_s=0.4, sender_s=0.02, others_s=None)
    assert failed(evidence.cpu_checks(seen, LIMITS, measuring_s=1.0)) == []


def test_packets_that_the_kernel_handles_are_no_other_program() -> None:
    """In a container the tunnel was starved by nobody: its own packets took 5 s of 20."""
    ticks = TICKS_PER_S
    cores = (CoreTicks(user=15 * ticks, system=0, softirq=5 * ticks, steal=0, idle=0, clock_s=20),)
    groups = {"client": GroupUsage(15.0, 0, 0), "tunnel": GroupUsage(15.0, 0, 0, 12.0)}
    seen = CpuUsage(20.0, groups, cores, others_s=None)
    assert failed(evidence.cpu_checks(seen, LIMITS, measuring_s=20.0)) == []
    other = replace(seen, groups={**groups, "client": GroupUsage(11.0, 0, 0)})
    assert failed(evidence.cpu_checks(other, LIMITS, measuring_s=20.0)) == ["starvation"]


def test_waiting_for_the_limit_of_a_device_is_no_starvation() -> None:
    seen = usage(wait_s=1.5, tunnel_s=0.02, sender_s=0.02, others_s=0.4)
    assert failed(evidence.cpu_checks(seen, LIMITS, measuring_s=1.0)) == ["starvation"]
    held = {**seen.groups, evidence.HELD: GroupUsage(0.02, 0.1, 0.1, 1.49)}
    limited = CpuUsage(seen.wall_s, held, seen.cores, others_s=0.4)
    assert failed(evidence.cpu_checks(limited, LIMITS, measuring_s=1.0)) == []
    little = {**seen.groups, evidence.HELD: GroupUsage(0.02, 0.1, 0.1, 0.5)}
    starved = CpuUsage(seen.wall_s, little, seen.cores, others_s=0.4)
    assert failed(evidence.cpu_checks(starved, LIMITS, measuring_s=1.0)) == ["starvation"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"lost": 6}, "link_conservation_forward"),
        ({"delivered": 99}, "link_conservation_forward"),
        ({"capture_dropped": 1}, "link_missed_forward"),
        ({"send_errors": 1}, "link_missed_forward"),
        ({"oversized": 1}, "link_missed_forward"),
        ({"checksum_missing": 1}, "link_missed_forward"),
        ({"lateness_recent_ns": late(2_000_001)}, "link_lateness_forward"),
    ],
)
def test_a_link_that_did_not_do_what_it_was_reported_is_seen(
    changes: dict[str, Any], name: str
) -> None:
    assert link(**changes) == [name]


def test_few_frames_far_from_each_other_may_be_late() -> None:
    after = LinkCounters(direction(lateness_recent_ns=late(3_000_000)), direction())
    checks = evidence.link_checks(BEFORE, after, None, LIMITS, apart_ns=20_000_000)
    assert failed(checks) == []
    assert "late_tail_link_lateness_forward" in {check.name for check in checks}
    close = evidence.link_checks(BEFORE, after, None, LIMITS, apart_ns=5_000_000)
    assert failed(close) == ["link_lateness_forward"]


def test_what_the_link_did_before_the_trial_does_not_count() -> None:
    earlier = LinkCounters(direction(capture_dropped=7), direction())
    later = LinkCounters(direction(capture_dropped=7), direction(lateness_recent_ns=None))
    assert failed(evidence.link_checks(earlier, later, None, LIMITS)) == []


def test_a_dead_link_or_tunnel_is_reported_in_its_own_words() -> None:
    (check,) = evidence.link_checks(BEFORE, None, "the link emulator ended: killed", LIMITS)
    assert (check.ok, check.message) == (False, "the link emulator ended: killed")
    (check,) = evidence.link_checks(BEFORE, None, None, LIMITS)
    assert not check.ok
    assert evidence.tunnel_check("openvpn ended").message == "openvpn ended"


def test_a_verdict_needs_evidence() -> None:
    assert not Validity(()).valid


def test_metrics_are_of_the_time_in_which_traffic_was_offered() -> None:
    after = LinkCounters(direction(), direction(delivered=0, delivered_bytes=0))
    found = evidence.run_metrics(
        usage(),
        BEFORE,
        after,
        awake_s=0.0,
        payload_bytes=1 << 29,
        payload_packets=1000,
        measuring_s=1.0,
        in_programs=True,
    )
    assert found["cpu_tunnel_ratio"] == 0.5
    assert found["cpu_client_ratio"] == 0.35
    assert found["cpu_machine_ratio"] == pytest.approx(45 / 200)
    assert found["cpu_tunnel_thread_max_ratio"] == 0.25
    assert found["cpu_core_max_ratio"] == pytest.approx(0.225)
    # The sender, and what reads /proc.
    assert found["cpu_instrument_s"] == pytest.approx(0.11)
    assert found["cpu_steal_ratio"] == 0
    assert found["cpu_cost_s_per_gib"] == 1.0
    assert found["cpu_cost_s_per_mpkt"] == 500.0
    # 100 frames of 114 bytes came through the link, each with an IP packet of 100 bytes.
    assert found["wire_forward_bit_s"] == 100 * 100 * 8
    assert found["wire_reverse_bit_s"] == 0
    assert found["wire_packet_mean_bytes"] == 100


@pytest.mark.parametrize(
    ("payload_bytes", "outside_bytes", "compression", "overhead"),
    [
        (8000, 0, 0.8, 0.25),
        (10_000, 0, 1.0, 0.0),
        (40_000, 0, 4.0, -0.75),
        (0, 0, None, None),
        # The link carried what went beside the tunnel, too.
        (1000, 7000, 0.8, 0.25),
    ],
)
def test_payload_and_wire_are_compared_over_both_directions(
    payload_bytes: int, outside_bytes: int, compression: float | None, overhead: float | None
) -> None:
    half = direction(delivered=50, delivered_bytes=50 * 114)
    found = evidence.run_metrics(
        usage(),
        BEFORE,
        LinkCounters(half, half),
        awake_s=0.0,
        payload_bytes=payload_bytes,
        payload_packets=10,
        measuring_s=1.0,
        outside_bytes=outside_bytes,
        in_programs=True,
    )
    assert found["compression_ratio"] == compression
    assert found["overhead_ratio"] == overhead


def test_what_was_not_measured_is_missing_and_not_zero() -> None:
    found = evidence.run_metrics(
        usage(),
        None,
        None,
        awake_s=0.0,
        payload_bytes=0,
        payload_packets=0,
        measuring_s=0.0,
        in_programs=True,
    )
    assert found["cpu_cost_s_per_gib"] is None
    assert found["cpu_cost_s_per_mpkt"] is None
    assert found["wire_forward_bit_s"] is None
    assert found["compression_ratio"] is None
    assert found["overhead_ratio"] is None
    assert found["wire_packet_mean_bytes"] is None
    assert found["cpu_tunnel_ratio"] == 0.25


def test_the_idle_daemon_of_a_tunnel_in_the_kernel_is_no_cost_and_all_that_ran_is() -> None:
    after = LinkCounters(direction(), direction())
    found = evidence.run_metrics(
        usage(tunnel_s=0.0, others_s=0.2),
        BEFORE,
        after,
        awake_s=0.0,
        payload_bytes=1 << 29,
        payload_packets=1000,
        measuring_s=0.5,
        in_programs=False,
    )
    for name in ("cpu_tunnel_ratio", "cpu_tunnel_thread_max_ratio"):
        assert found[name] is None
    assert found["cpu_cost_s_per_gib"] is found["cpu_cost_s_per_mpkt"] is None
    # Busy 0.45 s, less 0.2 s of others and 0.01 s of our own, in half a second.
    assert found["cpu_lab_ratio"] == pytest.approx(0.48)
    assert found["cpu_machine_cost_s_per_gib"] == pytest.approx(0.48)
    assert found["cpu_machine_cost_s_per_mpkt"] == pytest.approx(240)
    assert found["cpu_others_s"] == 0.2


def test_where_other_programs_are_not_seen_the_machine_has_no_cost_of_the_lab() -> None:
    found = evidence.run_metrics(
        usage(tunnel_s=0.4, others_s=None),
        BEFORE,
        LinkCounters(direction(), direction()),
        awake_s=0.1,
        payload_bytes=1 << 29,
        payload_packets=1000,
        measuring_s=0.5,
        in_programs=True,
    )
    unknown = ("lab_ratio", "others_s", "machine_cost_s_per_gib", "machine_cost_s_per_mpkt")
    assert [found[f"cpu_{name}"] for name in unknown] == [None] * 4
    assert found["cpu_cost_s_per_gib"] == pytest.approx(0.8)
    assert found["cpu_machine_ratio"] is not None


def test_what_the_instrument_waits_awake_is_no_cost_of_the_tunnel() -> None:
    found = evidence.run_metrics(
        usage(tunnel_s=0.0, others_s=0.2),
        BEFORE,
        LinkCounters(direction(), direction()),
        awake_s=0.1,
        payload_bytes=1 << 29,
        payload_packets=1000,
        measuring_s=0.5,
        in_programs=False,
    )
    assert found["cpu_awake_s"] == 0.1
    assert found["cpu_lab_ratio"] == pytest.approx(0.28)
    assert found["cpu_machine_cost_s_per_mpkt"] == pytest.approx(140)
    # It did run, and the instrument says so.
    assert found["cpu_instrument_s"] == pytest.approx(0.11)


def test_what_an_emulator_spends_awake_beside_the_machines_is_not_in_their_cores() -> None:
    def lab_ratio(beside_s: float) -> float | None:
        return evidence.run_metrics(
            usage(tunnel_s=0.0, others_s=0.2),
            BEFORE,
            LinkCounters(direction(), direction()),
            awake_s=0.1,
            awake_beside_s=beside_s,
            payload_bytes=1 << 29,
            payload_packets=1000,
            measuring_s=0.5,
            in_programs=False,
        )["cpu_lab_ratio"]

    assert lab_ratio(0.0) == pytest.approx(0.28)
    assert lab_ratio(0.06) == pytest.approx(0.28 + 0.06 / 0.5)
    assert lab_ratio(0.1) == pytest.approx(0.48)


def test_awake_time_counts_for_what_was_seen_to_run_only() -> None:
    awake = Awake()
    awake.sender("client", 30_000_000)
    awake.sender("client", 90_000_000)
    awake.sender("server", 50_000_000)  # nobody saw its processes
    after = LinkCounters(direction(), direction(), awake_ns=90_000_000)
    before = LinkCounters(ZERO, ZERO, awake_ns=40_000_000)
    seen = usage()
    assert awake.seconds(seen, before, after) == pytest.approx(0.1)  # no more than the sender ran
    groups = {**seen.groups, evidence.LINK: GroupUsage(0.2, 0.1, 0.1)}
    assert awake.seconds(replace(seen, groups=groups), before, after) == pytest.approx(0.15)
    assert awake.seconds(replace(seen, groups=groups), None, after) == pytest.approx(0.1)
    # A radio is no emulator, and waits for nothing.
    assert awake.seconds(replace(seen, groups=groups), BEFORE, BEFORE) == pytest.approx(0.1)


def test_a_device_lacks_nothing_as_long_as_its_cores_have_room() -> None:
    def judge(beside_s: float, capacity: float = 0.3) -> list[str]:
        idle = CoreTicks(user=0, system=0, softirq=0, steal=0, idle=200, clock_s=2.0)
        ticks = round((0.4 + beside_s) * 100)
        # The one between them is off.
        core = replace(idle, user=ticks, idle=200 - ticks, number=2)
        seen = CpuUsage(2.0, {"device client": GroupUsage(0.4, 0.1, 0.1)}, (idle, core))
        return failed(
            evidence.device_checks(seen, {"client": capacity}, {"client": (2,)}, measuring_s=2.0)
        )

    assert judge(0.0) == []
    assert judge(1.39) == []
    assert judge(1.42) == ["device_cores_client"]
    # A device as fast as a core here: what interrupts it is not held against it.
    assert judge(0.19, capacity=1.0) == []
    assert judge(0.22, capacity=1.0) == ["device_cores_client"]
    # Long before and after its traffic a trial brings programs up: that is not a load beside it.
    busy = CoreTicks(user=140, system=0, softirq=0, steal=0, idle=260, clock_s=4.0)
    seconds = tuple(
        CpuSecond(end, (CoreTicks(ticks, 0, 0, 0, 100 - ticks, 1.0),), None)
        for end, ticks in ((1.0, 40), (2.0, 35), (3.0, 40), (4.0, 25))
    )
    short = CpuUsage(4.0, {"device client": GroupUsage(0.1, 0.1, 0.0)}, (busy,), seconds)
    (check,) = evidence.device_checks(short, {"client": 0.5}, {"client": (0,)}, measuring_s=0.05)
    assert (check.ok, check.value) == (True, pytest.approx(0.3))
    nothing = CpuUsage(2.0, {}, ())
    assert evidence.device_checks(nothing, {"client": 1.0}, {"client": ()}, measuring_s=2.0) == []


def test_a_device_is_busy_by_its_programs_or_as_a_whole() -> None:
    cores = (CoreTicks(user=30, system=10, softirq=5, steal=0, idle=155, clock_s=2.0),)
    groups = {"device client": GroupUsage(0.5, 0.1, 0.1), "device server": GroupUsage(0, 0, 0)}
    found = evidence.device_metrics(
        CpuUsage(4.0, groups, cores),
        {"client": 0.25, "server": 0.5},
        {"client": Throttled(100, 40), "server": Throttled(0, 0)},
        {"client": None, "server": 1.0},
        measuring_s=2.0,
    )
    assert found == {
        "cpu_device_client_ratio": 1.0,
        "cpu_device_client_full_ratio": 0.4,
        "cpu_device_server_ratio": 0.5,
        "cpu_device_server_full_ratio": None,
    }
    assert evidence.device_metrics(CpuUsage(4.0, {}, cores), {}, {}, {}, measuring_s=2.0) == {}


def paths(*rates: float | None, name: str = "goodput_bit_s") -> list[Measurement]:
    total = Measurement("total", {name: sum(rate or 0 for rate in rates)})
    return [total, *(Measurement(str(n), {name: rate}) for n, rate in enumerate(rates))]


@pytest.mark.parametrize("name", ["goodput_bit_s", "tcp_goodput_bit_s", "goodput_reverse_bit_s"])
def test_fairness_is_one_among_equals_and_one_nth_where_one_has_all(name: str) -> None:
    assert fairness(paths(5.0, 5.0, 5.0, name=name)) == pytest.approx(1)
    assert fairness(paths(5.0, 0.0, 0.0, 0.0, name=name)) == pytest.approx(1 / 4)
    assert fairness(paths(1.0, 3.0, name=name)) == pytest.approx(16 / 20)


def test_fairness_of_one_path_or_of_nothing_is_none() -> None:
    assert fairness(paths(5.0)) is None
    assert fairness(paths(0.0, 0.0)) is None
    assert fairness(paths(None, None)) is None
    assert fairness([Measurement("0", {"rtt_p50_ns": 1.0})] * 2) is None


def test_a_sender_that_was_not_seen_while_it_ran_leaves_its_figures_missing() -> None:
    seen = usage()
    groups = {**seen.groups, "client": replace(seen.groups["client"], unseen=1)}
    groups["measuring client"] = GroupUsage(0.0, 0.0, 0.0, unseen=1)
    unseen = replace(seen, groups=groups)
    metrics = evidence.run_metrics(
        unseen,
        None,
        None,
        awake_s=0.0,
        payload_bytes=1000,
        payload_packets=10,
        measuring_s=1.0,
        in_programs=True,
    )
    assert metrics["cpu_client_ratio"] is metrics["cpu_instrument_s"] is None
    assert metrics["cpu_server_ratio"] is not None
    (check,) = [
        c
        for c in evidence.cpu_checks(unseen, Limits(), measuring_s=1.0)
        if c.name == "measuring_client"
    ]
    assert (check.ok, check.value) == (True, None)
    assert "how much it used is unknown" in check.message


def test_what_no_longer_holds_fails_and_says_what() -> None:
    def fallen_back() -> None:
        raise RefusedError("ocserv client of tunnel 0 runs with TLS1.3, the study asks for DTLS1.2")

    assert evidence.agreed_check(lambda: None).ok
    check = evidence.agreed_check(fallen_back)
    assert not check.ok
    assert "runs with TLS1.3" in check.message


def test_a_measuring_program_that_was_stopped_fails_the_trial_and_any_other_does_not() -> None:
    seen = usage()
    stopped = GroupUsage(0.1, 0.0, 0.0, stopped=1)
    groups = {**seen.groups, "measuring server": stopped, evidence.TUNNEL: stopped}
    checks = evidence.cpu_checks(replace(seen, groups=groups), Limits(), measuring_s=1.0)
    assert [(c.name, c.message) for c in checks if not c.ok] == [
        ("measuring_server", "measuring server was stopped for a time, by a signal or a tracer")
    ]
