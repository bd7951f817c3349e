"""What others take from a program that wants to run on this computer."""

import os
import time
from pathlib import Path
from typing import Final

from tunnelmark.probes.cpu import TICKS_PER_S, with_descendants
from tunnelmark.probes.proc import ProcCpu

_LEAST_ON_A_CORE_S: Final = 0.05
"""Some ticks, in which stolen time is counted, and longer than programs run at a time."""


def taken_ratio(look_s: float) -> float:
    """Return the share of ``look_s`` seconds that others take from a thread that never waits.

    It runs on one core after the other, on some of them where there are many. The hypervisor takes
    what it steals of that core; programs take what the thread waits on the core's run queue. Of
    that wait only the share of programs that this one has not started counts: those of a lab may
    run.
    """
    cores = sorted(os.sched_getaffinity(0))
    looked_at = cores[:: max(1, round(len(cores) * _LEAST_ON_A_CORE_S / look_s))]
    stolen_s = lasted_s = 0.0
    programs, waited_s = _Programs(), _waited_s()
    try:
        for core in looked_at:
            os.sched_setaffinity(0, {core})
            start, before_s = time.monotonic(), _stolen_s(core)
            while (lasted := time.monotonic() - start) < look_s / len(looked_at):
                pass
            lasted_s += lasted
            stolen_s += _stolen_s(core) - before_s
    finally:
        os.sched_setaffinity(0, cores)
    waited_s = (_waited_s() - waited_s) * programs.others_ratio()
    return min(1.0, (stolen_s + waited_s) / lasted_s)


class _Programs:
    """What programs have used since this was made, apart from this one."""

    def __init__(self) -> None:
        self._started, self._others_s, self._all_s = self._read(set())

    def others_ratio(self) -> float:
        """Return the share of those that this program has not started; 1 if none ran."""
        _, others_s, all_s = self._read(self._started)
        all_s -= self._all_s
        return min(1.0, max(0.0, others_s - self._others_s) / all_s) if all_s > 0 else 1.0

    @staticmethod
    def _read(known: set[int]) -> tuple[set[int], float, float]:
        view, own = ProcCpu().look(), os.getpid()
        started = known | with_descendants([own], view.children)
        return started, view.programs_s(started), view.programs_s({own})


def _waited_s() -> float:
    """Return how long this thread was ready to run and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _stolen_s(core: int) -> float:
    cores = ProcCpu().look().cores
    return cores[core].steal / TICKS_PER_S if core < len(cores) else 0.0
