"""CPU time inside a machine: what ended is not lost."""

from typing import Any, cast

from tunnelmark.hosts.agent import CpuSnapshot, ProcessCpu
from tunnelmark.lab.machine_cpu import MachineCpu
from tunnelmark.probes.cpu import CpuProbe

MS = 1_000_000
AGENT, DAEMON, SHORT = 1, 40, 50


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
