"""CPU time inside a machine: what ended is not lost."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tunnelmark.hosts.agent import CpuSnapshot, ProcessCpu
from tunnelmark.lab.hosts_place import _HostCpu
from tunnelmark.lab.machine_cpu import CpuOfAll, MachineCpu
from tunnelmark.probes.cpu import TICKS_PER_S, CpuProbe, CpuView, parse_cores

MS = 1_000_000
AGENT, DAEMON, SHORT = 1, 40, 50
_TAKEN = ((0, 0), (86, 14))
"""User ticks and stolen ones, before and after."""


class Reported:
    """A machine that tells what it is given, one reading after the other."""

    def __init__(self, *readings: CpuSnapshot) -> None:
        self._readings = list(readings)

    def cpu(self) -> CpuSnapshot:
        return self._readings.pop(0)


def process(pid: int, run_ms: int) -> ProcessCpu:
    return ProcessCpu(AGENT, run_ms // 10, 0, 0, ((pid, run_ms * MS),))


def test_what_a_program_used_is_there_when_it_has_ended_between_two_readings() -> None:
    stat = "cpu0 0 0 0 0 0 0 0 0\n"
    agent = {AGENT: ProcessCpu(0, 0, 0, 0, ((AGENT, 0),))}
    machine = Reported(
        CpuSnapshot(stat, 0, {**agent, DAEMON: process(DAEMON, 100)}, {}),
        # Both are gone. One had not even begun at the first reading.
        CpuSnapshot(
            stat,
            2000 * MS,
            {AGENT: ProcessCpu(0, 0, 0, 73, ((AGENT, 0),))},
            {DAEMON: process(DAEMON, 700), SHORT: process(SHORT, 30)},
        ),
    )
    probe = CpuProbe(
        lambda: {"tunnel": [DAEMON], "workload": [SHORT]},
        MachineCpu(cast("Any", machine)),
    )
    probe.start(0)
    usage = probe.stop(2000 * MS)
    assert usage.groups["tunnel"].run_s == 0.6
    assert usage.groups["workload"].run_s == 0.03
    # Waited for by the agent, which looks: it is nobody else's.
    assert usage.others_s == 0


def test_a_program_that_was_stopped_there_is_known_here() -> None:
    stat = "cpu0 0 0 0 0 0 0 0 0\n"
    runs, stopped = process(DAEMON, 100), dataclasses.replace(process(DAEMON, 100), stopped=True)
    machine = Reported(*(CpuSnapshot(stat, 0, {DAEMON: one}) for one in (runs, stopped, runs)))
    probe = CpuProbe(lambda: {"measuring": [DAEMON]}, MachineCpu(cast("Any", machine)))
    probe.start(0)
    probe.sample(MS)
    assert probe.stop(2 * MS).groups["measuring"].stopped == 1


def test_what_is_taken_from_the_computer_under_a_machine_is_taken_from_the_machine() -> None:
    """The machine counts none of it; a trial in it once said 0 % while a seventh was taken."""
    inside = "cpu0 0 0 0 {idle} 0 0 0 0\n"
    machine = Reported(*(CpuSnapshot(inside.format(idle=i), 0, {}) for i in (0, 100)))
    computer = [parse_cores(f"cpu0 {user} 0 0 0 0 0 0 {steal}\n", 0) for user, steal in _TAKEN]
    source = MachineCpu(cast("Any", machine), underlying=lambda: computer.pop(0))
    probe = CpuProbe(lambda: {"tunnel": []}, source)
    probe.start(0)
    usage = probe.stop(1000 * MS)
    assert usage.steal_ratio == 0.14
    # Nothing else of that computer is the machine's.
    assert len(usage.cores) == 1
    assert usage.cores[0].total == 100


def test_the_same_under_a_machine_for_each_endpoint() -> None:
    ends = [Machine(f"cpu0 0 0 0 0 0 0 0 {steal}\n", 0.0) for steal in (0, 3)]
    computer = Machine("cpu0 0 0 0 0 0 0 0 0\n", None)
    probe = CpuProbe(lambda: {"tunnel": []}, CpuOfAll(ends, computer))
    probe.start(0)
    ends[0].stat, ends[1].stat = "cpu0 100 0 0 0 0 0 0 0\n", "cpu0 99 0 0 0 0 0 0 4\n"
    computer.stat = "cpu0 86 0 0 0 0 0 0 14\n"
    assert probe.stop(1000 * MS).steal_ratio == 0.14
    # What a machine itself says was taken from it counts, too.
    probe.start(0)
    ends[0].stat = "cpu0 100 0 0 0 0 0 0 50\n"
    assert probe.stop(1000 * MS).steal_ratio == 1.0


class Machine:
    """One whose cores are those of a text; its programs used so much, or are not seen."""

    def __init__(self, stat: str, used_s: float | None) -> None:
        self.stat, self.used_s = stat, used_s

    def look(self) -> CpuView:
        cores = parse_cores(self.stat, 10**9)
        return CpuView(cores, lambda _pid: (), lambda _pid: None, lambda _without: self.used_s)


def test_cores_of_two_machines_are_two_whatever_their_numbers() -> None:
    one, other = Machine("cpu0 0 0 0 9 0 0 0 0\n", 0.5), Machine("cpu0 0 0 0 7 0 0 0 0\n", 0.25)
    source = CpuOfAll([one, other])
    view = source.look()
    assert [core.idle for core in view.cores] == [9, 7]
    assert len({core.number for core in view.cores}) == 2
    assert view.programs_s(set()) == 0.75
    other.used_s = None
    assert source.look().programs_s(set()) is None


def test_the_programs_of_a_host_that_is_a_container_are_not_all() -> None:
    """Its own /proc shows no thread of the kernel's."""
    fields = "S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 1 1 1"
    init = f"1 (init) {fields.format(parent=0, ticks=0)}\n"
    kernel = f"2 (kthreadd) {fields.format(parent=0, ticks=7)}\n"
    shell = f"2 (sh) {fields.format(parent=1, ticks=TICKS_PER_S)}\n"
    for line, used in ((kernel, 2.0), (shell, None)):
        other = f"9 (cc1) {fields.format(parent=1, ticks=2 * TICKS_PER_S)}\n"
        said = SimpleNamespace(text=lambda line=line, other=other: init + line + other)
        agent = Reported(CpuSnapshot("cpu0 0 0 0 0 0 0 0 0\n", 0, {}, {}))
        agent.directory = Path("/tmp/tm")  # type: ignore[attr-defined]  # noqa: S108
        computer: Any = SimpleNamespace(
            role="client", agent=agent, host=SimpleNamespace(run=lambda *_, said=said, **__: said)
        )
        assert _HostCpu(computer).look().programs_s(set()) == used
