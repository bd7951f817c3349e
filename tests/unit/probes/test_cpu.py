"""Readings of /proc: parsed exactly, summed over processes that come and go."""

import os

from tunnelmark.probes.cpu import (
    CoreTicks,
    CpuProbe,
    CpuUsage,
    CpuView,
    GroupUsage,
    ProcCpu,
    Reading,
    parse_cores,
    parse_process,
)

_STAT = """cpu  30 0 30 300 3 0 6 9 0 0
cpu0 10 1 10 100 1 2 3 4 0 0
cpu1 20 2 20 200 2 0 3 5 0 0
intr 1 2 3
"""


def test_cores_are_read_in_order_without_their_sum() -> None:
    first, second = parse_cores(_STAT)
    assert first == CoreTicks(user=11, system=12, softirq=3, steal=4, idle=101)
    assert second.total == 22 + 20 + 3 + 5 + 202


def test_a_process_s_name_may_hold_anything() -> None:
    fields = "S 7 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 12345 1 1"
    assert parse_process(f"42 (a ) b (c) {fields}") == (7, 250, 50)


def test_stolen_time_is_not_busy_time() -> None:
    cores = (CoreTicks(user=10, system=0, softirq=0, steal=40, idle=50),)
    usage = CpuUsage(1.0, {"tunnel": GroupUsage(0.5, 0.4, 0.1)}, cores)
    assert usage.machine_ratio == 0.1
    assert usage.steal_ratio == 0.4


def test_without_a_tick_there_is_no_ratio() -> None:
    cores = (CoreTicks(0, 0, 0, 0, 0),)
    assert CpuUsage(0.0, {}, cores).machine_ratio is None
    assert CpuUsage(0.0, {}, cores).steal_ratio is None


class Scripted:
    """Processes as a test has them."""

    def __init__(self) -> None:
        self.readings: dict[int, Reading] = {}

    def look(self) -> CpuView:
        return CpuView(_STAT, {}, self.readings.get)


def test_waiting_is_summed_over_a_group_and_a_group_that_does_not_tell_has_none() -> None:
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": [1, 2], "client": [2, 3]}, source)
    source.readings = {
        1: Reading(0, 0, 0, 5_000_000),
        2: Reading(0, 0, 0, 0),
        3: Reading(0, 0, 0),
    }
    probe.start(0)
    source.readings = {
        1: Reading(10_000_000, 1, 0, 25_000_000),
        2: Reading(20_000_000, 0, 2, 10_000_000),
        3: Reading(5_000_000, 0, 0),
    }
    usage = probe.stop(10**9)
    assert usage.groups["tunnel"].wait_s == 0.03
    assert usage.groups["tunnel"].run_s == 0.03
    assert usage.groups["client"].wait_s is None


def test_this_process_tells_how_long_it_waited() -> None:
    view = ProcCpu().look()
    own = view.reading(os.getpid())
    assert own is not None
    assert own.run_ns > 0
    assert own.wait_ns is not None
    assert own.wait_ns >= 0
