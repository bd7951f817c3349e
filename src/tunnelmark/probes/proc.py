"""The CPU time of this machine's processes, from its ``/proc`` and its clocks. See proc(5)."""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tunnelmark.probes.cpu import (
    TICKS_PER_S,
    CoreTicks,
    CpuView,
    Reading,
    ThreadReading,
    parse_cores,
)

PROC: Final = Path("/proc")
_KTHREADD: Final = 2
"""Parent of all threads of the kernel."""
_SCHEDULED: Final = 2
"""Which of a process's clocks: what the scheduler says it ran."""
_ENDED: Final = (FileNotFoundError, ProcessLookupError, IndexError)


class ProcCpu:
    """The processes of this machine; each is read when it is asked for."""

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where cores and programs are read that are not ours."""
        self._proc = proc

    def look(self) -> CpuView:
        """Read the cores now."""
        return CpuView(
            cores_now(self._proc),
            _children,
            _reading,
            partial(programs_s, proc=self._proc) if sees_all(self._proc) else _unseen,
            (os.getpid(),),
            parse_load_average((self._proc / "loadavg").read_text(encoding="ascii")),
        )


def cores_now(proc: Path = PROC) -> tuple[CoreTicks, ...]:
    """Read the cores of this computer."""
    stat = (proc / "stat").read_text(encoding="ascii")
    return parse_cores(stat, time.monotonic_ns())


def sees_all(proc: Path = PROC) -> bool:
    """Say whether ``proc`` has every program of the computer, not those of a container alone.

    Threads of the kernel are in the first process namespace only. ``/proc/stat`` has the cores of
    the whole computer everywhere.
    """
    try:
        return is_kthreadd((proc / str(_KTHREADD) / "stat").read_text(errors="replace"))
    except OSError:
        return False


def is_kthreadd(stat: str) -> bool:
    """Say whether a line of ``/proc/PID/stat`` is of the parent of all threads of the kernel."""
    return stat.startswith(f"{_KTHREADD} (kthreadd) ")


def parse_load_average(text: str) -> float | None:
    """Parse ``/proc/loadavg``: the average of the last minute; None if it does not begin so."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None


def parse_process(text: str) -> tuple[int, int, int, int]:
    """Parse ``/proc/PID/stat``: parent, user and system ticks, both of children waited for.

    The name may hold anything.
    """
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[11]), int(fields[12]), int(fields[13]) + int(fields[14])


def is_stopped(text: str) -> bool:
    """Say whether ``/proc/PID/stat`` is of a process that a signal or a tracer has stopped."""
    return text.rpartition(")")[2].split()[0] in {"T", "t"}


def process_clock(pid: int) -> int:
    """Return the clock of what all threads of a process ever ran: clock_getcpuclockid(3)."""
    return (~pid << 3) | _SCHEDULED


def _reading(pid: int) -> Reading | None:
    directory = Path(f"/proc/{pid}")
    threads = {}
    try:
        stat = (directory / "stat").read_text(errors="replace")
        _, user, system, _ = parse_process(stat)
        for task in (directory / "task").iterdir():
            try:
                fields = (task / "schedstat").read_text(encoding="ascii").split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            threads[int(task.name)] = ThreadReading(int(fields[0]), int(fields[1]))
        run_ns = time.clock_gettime_ns(process_clock(pid))
    except (*_ENDED, OSError):
        return None
    return Reading(run_ns, user, system, threads, is_stopped(stat))


def _children(pid: int) -> list[int]:
    """Return the children of a process, of all its threads."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    except (FileNotFoundError, ProcessLookupError):
        if not Path("/proc/self/task").joinpath(str(os.getpid()), "children").exists():
            return [child for child, (parent, *_) in _processes(PROC) if parent == pid]
    return found


def programs_s(without: set[int], proc: Path) -> float:
    """Return the CPU seconds of all programs in ``proc`` but some.

    Sums up what lives, each with what it waited for: what ends meanwhile changes its place.
    """
    ticks = sum(
        user + system + waited_for
        for pid, (parent, user, system, waited_for) in _processes(proc)
        if pid not in without and _KTHREADD not in {pid, parent}
    )
    return ticks / TICKS_PER_S


def _unseen(_without: set[int]) -> None:
    """Return nothing: what programs outside this container used is not known."""


def _processes(proc: Path) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), parse_process((entry / "stat").read_text(errors="replace"))
            except _ENDED:
                continue
