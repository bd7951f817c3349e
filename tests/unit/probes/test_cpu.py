"""Readings of /proc: parsed exactly, summed over processes that come and go."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelmark.probes.cpu import (
    TICKS_PER_S,
    CoreTicks,
    CpuProbe,
    CpuSecond,
    CpuUsage,
    CpuView,
    GroupUsage,
    Reading,
    ThreadReading,
    parse_cores,
)
from tunnelmark.probes.proc import PROC, ProcCpu, parse_process, process_clock, programs_s

_STAT = """cpu  30 0 30 300 3 0 6 9 0 0
cpu0 10 1 10 100 1 2 3 4 0 0
cpu1 20 2 20 200 2 0 3 5 0 0
intr 1 2 3
"""


def test_cores_are_read_in_order_without_their_sum() -> None:
    first, second = parse_cores(_STAT, 1_500_000_000)
    assert first == CoreTicks(user=11, system=12, softirq=3, steal=4, idle=101, clock_s=1.5)
    assert second.total == 22 + 20 + 3 + 5 + 202
    assert (first.number, second.number) == (0, 1)


def test_a_process_s_name_may_hold_anything() -> None:
    fields = "S 7 1 1 0 -1 4194560 100 0 0 0 250 50 3 4 20 0 1 0 12345 1 1"
    assert parse_process(f"42 (a ) b (c) {fields}") == (7, 250, 50, 7)


def test_stolen_time_is_not_busy_time() -> None:
    cores = (CoreTicks(user=10, system=0, softirq=0, steal=40, idle=50, clock_s=1.0),)
    usage = CpuUsage(1.0, {"tunnel": GroupUsage(0.5, 0.4, 0.1)}, cores)
    assert usage.machine_ratio == pytest.approx(0.1)
    assert usage.steal_ratio == 0.4


def test_without_a_tick_there_is_no_ratio() -> None:
    cores = (CoreTicks(0, 0, 0, 0, 0, 0.0),)
    assert CpuUsage(0.0, {}, cores).machine_ratio is None
    assert CpuUsage(0.0, {}, cores).steal_ratio is None


class Scripted:
    """Processes as a test has them."""

    def __init__(self) -> None:
        self.readings: dict[int, Reading] = {}
        self.stat, self.at_ns = _STAT, 10**9
        self.others_s: float | None = 0.0

    def programs_s(self, without: set[int]) -> float | None:
        assert 99 in without
        return self.others_s

    def look(self) -> CpuView:
        cores = parse_cores(self.stat, self.at_ns)
        return CpuView(cores, lambda _pid: (), self.readings.get, self.programs_s, (99,))


def one(run_ns: int, wait_ns: int | None) -> Reading:
    """Return a process of one thread."""
    return Reading(run_ns, 0, 0, {1: ThreadReading(run_ns, wait_ns)})


def test_softirq_between_two_ticks_counts_though_no_tick_saw_it() -> None:
    # 1 s later: 30 ticks idle on one core of two, and 5 ticks of user only that a tick saw.
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": []}, source)
    source.readings = {99: one(0, 0)}
    probe.start(0)
    source.stat = _STAT.replace("cpu0 10 1 10 100", "cpu0 15 1 10 130").replace(
        "cpu1 20 2 20 200", "cpu1 20 2 20 300"
    )
    source.at_ns += 10**9
    source.others_s = 0.2
    source.readings = {99: one(100_000_000, 0)}
    usage = probe.stop(10**9)
    assert usage.busy_s == pytest.approx(0.7)
    assert usage.lab_s == pytest.approx(0.7 - 0.2 - 0.1)
    assert usage.machine_ratio == pytest.approx(0.35)
    assert usage.core_max_ratio(1.0) == pytest.approx(0.7)


def test_a_core_is_known_by_its_number_where_one_before_it_is_off() -> None:
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": []}, source)
    source.stat = _STAT.replace("cpu1", "cpu2")
    probe.start(0)
    # One that was off at the start, and stands before the other, is left out.
    source.stat = "cpu0 10 1 10 200 1 2 3 4\ncpu1 7 0 0 0 0 0 0 0\ncpu2 90 2 20 230 2 0 3 5\n"
    source.at_ns += 10**9
    probe.sample(10**9)
    usage = probe.stop(10**9)
    assert [core.number for core in usage.cores] == [0, 2]
    assert usage.core_ratio(2, 1.0) == pytest.approx(0.7)
    assert usage.core_ratio(0, 1.0) == pytest.approx(0.0)
    assert usage.core_ratio(1, 1.0) is None
    assert usage.core_max_ratio(1.0) == pytest.approx(0.7)
    assert len(usage.seconds) == 1


def test_an_hour_of_many_cores_is_read_at_once() -> None:
    """Each core went through every second of all of them: a minute for 128 cores."""
    reads = 0

    class Cores(tuple[CoreTicks, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[CoreTicks]:
            nonlocal reads
            reads += 1
            return super().__iter__()

    def cores(clock_s: float) -> list[CoreTicks]:
        return [CoreTicks(0, 0, 0, 0, number * TICKS_PER_S, clock_s, number) for number in range(4)]

    seconds = tuple(CpuSecond(end_s + 4.0, Cores(cores(4.0)), None) for end_s in range(10))
    usage = CpuUsage(40.0, {}, tuple(cores(40.0)), seconds)
    assert usage.core_max_ratio(10.0) == 1.0
    assert usage.core_ratio(3, 10.0) == 0.25
    assert reads == len(seconds)


def test_where_other_programs_are_not_seen_what_they_used_is_unknown() -> None:
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": []}, source)
    source.others_s = None
    probe.start(0)
    source.at_ns += 10**9
    usage = probe.stop(10**9)
    assert (usage.others_s, usage.lab_s) == (None, None)
    assert usage.machine_ratio is not None


def fake_proc(folder: Path, second: str) -> Path:
    """Return a /proc whose process 2 has a name; process 9 has run for 3 s."""
    ran = round(3 * TICKS_PER_S)
    for pid, name, parent, ticks in ((1, "init", 0, 0), (2, second, 0, 0), (9, "cc1", 1, ran)):
        (folder / str(pid)).mkdir(parents=True)
        fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 1 1 1"
        (folder / str(pid) / "stat").write_text(f"{pid} ({name}) {fields}\n")
    (folder / "stat").write_text(_STAT)
    (folder / "loadavg").write_text("0.5 0.4 0.3 1/2 3\n")
    return folder


def test_only_where_the_kernel_s_threads_are_seen_all_programs_are(tmp_path: Path) -> None:
    whole = ProcCpu(fake_proc(tmp_path / "computer", "kthreadd")).look()
    assert whole.programs_s(set()) == pytest.approx(3.0)
    assert whole.programs_s({9}) == 0.0
    inside = ProcCpu(fake_proc(tmp_path / "container", "sh")).look()
    assert inside.programs_s(set()) is None
    (tmp_path / "container" / "2" / "stat").unlink()
    assert ProcCpu(tmp_path / "container").look().programs_s(set()) is None


def test_in_a_process_namespace_other_programs_are_not_seen() -> None:
    root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    script = "from tunnelmark.probes.proc import ProcCpu; print(ProcCpu().look().programs_s(set()))"
    words = ["unshare", *root, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # Process 2 there is the program that looks.
    done = subprocess.run(
        [*words, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


def test_a_thread_that_ended_keeps_what_it_ran_and_the_busiest_is_reported() -> None:
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": [7]}, source)
    threads = {7: ThreadReading(0, 0), 8: ThreadReading(0, 0)}
    source.readings = {7: Reading(None, 0, 0, threads)}
    probe.start(0)
    threads = {7: ThreadReading(10_000_000, 0), 8: ThreadReading(400_000_000, 0)}
    source.readings = {7: Reading(None, 0, 0, threads)}
    probe.sample(5 * 10**8)
    # It used to be the largest sum of those that live: 0.41 s for ever.
    source.readings = {7: Reading(None, 0, 0, {7: ThreadReading(300_000_000, 0)})}
    used = probe.stop(10**9).groups["tunnel"]
    assert used.run_s == pytest.approx(0.7)
    assert used.busiest_thread_s == pytest.approx(0.4)


def test_what_came_and_went_between_two_readings_is_not_0_but_unknown() -> None:
    """A sender of half a second in a machine that is read once a second used "0 % of a core"."""
    pids = {5}
    source = Scripted()
    probe = CpuProbe(lambda: {"measuring": set(pids), "tunnel": [7]}, source)
    source.readings = {7: one(0, 0)}  # 5 ended before the start
    probe.start(0)
    pids.add(6)
    source.readings = {7: one(100_000_000, 0)}
    groups = probe.stop(10**9).groups
    assert (groups["measuring"].unseen, groups["tunnel"].unseen) == (1, 0)


def test_the_process_clock_has_the_threads_that_ended() -> None:
    def burn() -> None:
        end = time.thread_time_ns() + 50_000_000
        while time.thread_time_ns() < end:
            pass

    before = time.clock_gettime_ns(process_clock(os.getpid()))
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    assert time.clock_gettime_ns(process_clock(os.getpid())) - before >= 50_000_000


def test_what_ends_unseen_is_counted_with_who_waited_for_it() -> None:
    script = "import time; e = time.process_time() + .1\nwhile time.process_time() < e: pass"
    before, excluded = programs_s(set(), PROC), programs_s({os.getpid()}, PROC)
    subprocess.run([sys.executable, "-c", script], check=True)
    assert programs_s(set(), PROC) - before >= 0.08
    assert excluded <= before


def test_waiting_is_summed_over_a_group_and_a_group_that_does_not_tell_has_none() -> None:
    source = Scripted()
    probe = CpuProbe(lambda: {"tunnel": [1, 2], "client": [2, 3]}, source)
    source.readings = {
        1: one(0, 5_000_000),
        2: one(0, 0),
        3: one(0, None),
    }
    probe.start(0)
    source.readings = {
        1: one(10_000_000, 25_000_000),
        2: one(20_000_000, 10_000_000),
        3: one(5_000_000, None),
    }
    usage = probe.stop(10**9)
    assert usage.groups["tunnel"].wait_s == 0.03
    assert usage.groups["tunnel"].run_s == 0.03
    assert usage.groups["client"].wait_s is None


def test_this_process_tells_how_long_it_waited() -> None:
    view = ProcCpu().look()
    own = view.reading(os.getpid())
    assert own is not None
    assert own.run_ns is not None
    assert own.run_ns > 0
    assert os.getpid() in own.threads
    assert all(thread.wait_ns is not None for thread in own.threads.values())
    assert os.getpid() in view.children(os.getppid())


def test_a_process_that_is_stopped_between_two_readings_is_known() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper, subprocess.Popen(["sleep", "60"]) as other:
        probe = CpuProbe(lambda: {"measuring": [sleeper.pid], "client": [other.pid]}, ProcCpu())
        probe.start(0)
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
        probe.sample(1)
        sleeper.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
        usage = probe.stop(2)
        sleeper.kill()
        other.kill()
    assert [usage.groups[name].stopped for name in ("measuring", "client")] == [1, 0]
