"""How busy others keep this computer: the hypervisor that it is a guest of, and other programs."""

import json
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunnelmark.model.child import Child
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.quantity import percent
from tunnelmark.probes.cpu import TICKS_PER_S, CpuProbe
from tunnelmark.probes.proc import ProcCpu

_LEAST_ON_A_CORE_S: Final = 0.05
"""Some ticks, in which stolen time is counted, and longer than programs run at a time."""
_GAP_US: Final = 1000
_LIMIT_S: Final = 30.0
_STARTED: Final = "started"
"""The group of this program and of what it has started."""


@dataclass(frozen=True)
class Busy:
    """What a look shows, and what a limit of it is."""

    late_ns: int
    """How late 1 % of timers are, on the core where they are latest."""
    taken_ratio: float
    """Share of the time that others take from a thread that never waits."""

    def within(self, limit: "Busy") -> bool:
        """Say whether it is no more than a limit."""
        return self.late_ns <= limit.late_ns and self.taken_ratio <= limit.taken_ratio

    def beside(self, limit: "Busy") -> str:
        """Return both in one phrase: ``timers 3.4 ms late, limit 1.0 ms; …``."""
        return (
            f"timers {_ms(self.late_ns)} late, limit {_ms(limit.late_ns)}; "
            f"{percent(self.taken_ratio)} of the time taken, limit {percent(limit.taken_ratio)}"
        )


def look(agent: str, look_s: float) -> Busy:
    """Look for ``look_s`` seconds, half of it for each figure.

    What the hypervisor takes shows in how late a core wakes up, more than in what it takes from one
    that is always busy: those keep their turn longer. What programs take shows in the latter. On
    a computer of many cores some of them are looked at. Raises ``LabError`` if ``agent`` (the
    path of tunnelmark-agent) cannot run, ``LabFailedError`` if it gives no answer.
    """
    cores = sorted(os.sched_getaffinity(0))
    looked_at = cores[:: max(1, round(len(cores) * _LEAST_ON_A_CORE_S / look_s))]
    try:
        return Busy(_late_ns(agent, look_s / 2, looked_at), _taken_ratio(look_s / 2, looked_at))
    finally:
        os.sched_setaffinity(0, cores)


def _late_ns(agent: str, look_s: float, cores: Sequence[int]) -> int:
    """Wake up on all cores at once; return how late 1 % of the times are on the latest."""
    words = [agent, "steadiness", str(_GAP_US), str(round(look_s * 1e6 / _GAP_US))]
    running = []
    try:
        for core in cores:
            os.sched_setaffinity(0, {core})
            running.append(Child(words, stdout=subprocess.PIPE))
        said = [process.communicate(timeout=_LIMIT_S)[0] for process in running]
        return max(int(json.loads(line)["lateness_ns"]["p99"]) for line in said)
    except OSError as error:
        raise LabError(f"{agent} steadiness: {error}") from error
    except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        # Whoever ended or stopped it need not do so again.
        raise LabFailedError(f"{agent} steadiness: {error}") from error
    finally:
        _end(running)


def _end(running: Iterable[Child]) -> None:
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _taken_ratio(look_s: float, cores: Sequence[int]) -> float:
    """Return the share that others take from a thread that never waits, core after core.

    The hypervisor takes what it steals of that core; programs take what the thread waits on
    the core's run queue. Of that wait only the share of programs that this one has not started
    counts: those of a lab may run. Where other programs are not seen, all of it counts.
    """
    stolen_s = lasted_s = others_s = started_s = 0.0
    seen = True
    waited_s = _waited_s()
    for core in cores:
        os.sched_setaffinity(0, {core})
        probe = CpuProbe(lambda: {_STARTED: (os.getpid(),)}, ProcCpu())
        start = time.monotonic()
        probe.start(int(start * 1e9))
        while (lasted := time.monotonic() - start) < look_s / len(cores):
            pass
        used = probe.stop(time.monotonic_ns())
        lasted_s += lasted
        stolen_s += ticks.steal / TICKS_PER_S if (ticks := used.core(core)) is not None else 0.0
        seen &= used.others_s is not None
        others_s += used.others_s or 0.0
        started_s += max(0.0, used.groups[_STARTED].run_s - used.own_s)
    ran_s = others_s + started_s
    others = others_s / ran_s if seen and ran_s > 0 else 1.0
    return min(1.0, (stolen_s + (_waited_s() - waited_s) * others) / lasted_s)


def _waited_s() -> float:
    """Return how long this thread was ready to run and had no core; 0 where it is not counted."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0.0
    return int(text.split()[1]) / 1e9


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f} ms"
