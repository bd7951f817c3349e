"""Readings of /proc: parsed exactly, summed over processes that come and go."""

from tunnelmark.probes.cpu import CoreTicks, CpuUsage, GroupUsage, parse_cores, parse_process

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
