"""CPU during a trial: by group of processes, by core, and what the hypervisor took.

Run and waiting time come from ``/proc/PID/task/*/schedstat`` (exact, in ns); the split into user
and system from ``/proc/PID/stat`` (sampled at clock ticks); cores from ``/proc/stat``. See proc(5).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_SECOND_NS: Final = 10**9
_MOST_SECONDS: Final = 3600


@dataclass(frozen=True)
class CoreTicks:
    """Clock ticks of one core since boot, or between two readings."""

    user: int
    system: int
    softirq: int
    steal: int
    idle: int

    @property
    def total(self) -> int:
        """All ticks; interrupts count as system."""
        return self.user + self.system + self.softirq + self.steal + self.idle

    def minus(self, earlier: "CoreTicks") -> "CoreTicks":
        """Return the ticks since an earlier reading."""
        return CoreTicks(
            self.user - earlier.user,
            self.system - earlier.system,
            self.softirq - earlier.softirq,
            self.steal - earlier.steal,
            self.idle - earlier.idle,
        )


@dataclass(frozen=True)
class CpuSecond:
    """What the cores did between two samples, a second or more apart."""

    end_s: float
    """Since the probe's start."""
    cores: tuple[CoreTicks, ...]
    load_average: float | None


@dataclass(frozen=True)
class GroupUsage:
    """CPU seconds of a group of processes."""

    run_s: float
    user_s: float
    system_s: float
    wait_s: float | None = None
    """Time in which they could have run and no core was free for them; None if not known."""


@dataclass(frozen=True)
class CpuUsage:
    """What a trial used."""

    wall_s: float
    groups: Mapping[str, GroupUsage]
    cores: tuple[CoreTicks, ...]
    seconds: "tuple[CpuSecond, ...]" = ()
    """The same second by second, as far as it was sampled in between."""
    load_average: float | None = None
    """Of the last minute, at the end; None where it is not known."""

    @property
    def softirq_ratio(self) -> float | None:
        """Share of all cores' time spent in softirq; None without a tick."""
        total = sum(core.total for core in self.cores)
        return sum(core.softirq for core in self.cores) / total if total else None

    @property
    def machine_ratio(self) -> float | None:
        """Busy share of all cores, stolen time not counted as busy; None without a tick."""
        total = sum(core.total for core in self.cores)
        idle = sum(core.idle + core.steal for core in self.cores)
        return (total - idle) / total if total else None

    @property
    def busy_s(self) -> float:
        """Seconds of all cores in which they were busy, stolen time not counted."""
        ticks = sum(core.total - core.idle - core.steal for core in self.cores)
        return ticks / _TICKS_PER_S

    @property
    def steal_ratio(self) -> float | None:
        """Share of time taken by the hypervisor."""
        total = sum(core.total for core in self.cores)
        return sum(core.steal for core in self.cores) / total if total else None


@dataclass(frozen=True)
class Reading:
    """What one process has used since its start."""

    run_ns: int
    user: int
    """Clock ticks."""
    system: int
    """Clock ticks."""
    wait_ns: int | None = None
    """Time on a run queue; None where it is not read."""


@dataclass(frozen=True)
class CpuView:
    """What is seen at one moment."""

    stat: str
    """Text of ``/proc/stat``."""
    children: Mapping[int, list[int]]
    """Process id to those of its children."""
    reading: Callable[[int], Reading | None]
    """Process id to what it has used; None if it is gone."""
    load_average: float | None = None
    """Of the last minute, as ``/proc/loadavg`` has it; None where it is not read."""


class CpuSource(Protocol):
    """Where the CPU time of processes is read: this machine, or one that runs on it."""

    def look(self) -> CpuView:
        """Read now."""


class ProcCpu:
    """The ``/proc`` of this machine."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Read below ``proc``."""
        self._proc = proc

    def look(self) -> CpuView:
        """Read the tree of processes now, each process when it is asked for."""
        stat = (self._proc / "stat").read_text(encoding="ascii")
        children = _children(self._proc)
        load = parse_load_average((self._proc / "loadavg").read_text(encoding="ascii"))
        return CpuView(stat, children, lambda pid: _read_process(self._proc / str(pid)), load)


class CpuProbe:
    """Reads before and after; ``sample`` in between keeps what threads that end had used."""

    def __init__(
        self,
        groups: Callable[[], Mapping[str, Iterable[int]]],
        source: CpuSource | None = None,
    ) -> None:
        """Watch groups of process ids (each with its descendants); asked anew at each reading.

        ``source`` is this machine's ``/proc`` unless the processes run elsewhere.
        """
        self._groups = groups
        self._source = source or ProcCpu()
        self._first: dict[tuple[str, int], Reading] = {}
        self._last: dict[tuple[str, int], Reading] = {}
        self._cores: tuple[CoreTicks, ...] = ()
        self._start_ns = 0
        self._second_ns = 0
        self._second_cores: tuple[CoreTicks, ...] = ()
        self._seconds: deque[CpuSecond] = deque(maxlen=_MOST_SECONDS)

    def start(self, now_ns: int) -> None:
        """Begin at ``now_ns`` (monotonic)."""
        self._start_ns = self._second_ns = now_ns
        view = self._source.look()
        self._cores = self._second_cores = parse_cores(view.stat)
        self._first = self._read(view)
        self._last = dict(self._first)

    def sample(self, now_ns: int) -> None:
        """Read in between; the cores are noted once a second."""
        view = self._source.look()
        self._last.update(self._read(view))
        if now_ns - self._second_ns < _SECOND_NS:
            return
        cores = parse_cores(view.stat)
        used = _since(cores, self._second_cores)
        end_s = (now_ns - self._start_ns) / 1e9
        self._seconds.append(CpuSecond(end_s, used, view.load_average))
        self._second_ns, self._second_cores = now_ns, cores

    def stop(self, now_ns: int) -> CpuUsage:
        """Return what was used since the start."""
        view = self._source.look()
        self._last.update(self._read(view))
        cores = parse_cores(view.stat)
        used = _since(cores, self._cores)
        sums: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in self._groups()}
        for (group, pid), last in self._last.items():
            first = self._first.get((group, pid), Reading(0, 0, 0))
            entry = sums.setdefault(group, [0.0, 0.0, 0.0])
            entry[0] += (last.run_ns - first.run_ns) / 1e9
            entry[1] += (last.user - first.user) / _TICKS_PER_S
            entry[2] += (last.system - first.system) / _TICKS_PER_S
        waits = self._waits()
        usage = {
            name: GroupUsage(run, user, system, waits.get(name))
            for name, (run, user, system) in sums.items()
        }
        return CpuUsage(
            (now_ns - self._start_ns) / 1e9, usage, used, tuple(self._seconds), view.load_average
        )

    def _waits(self) -> dict[str, float]:
        """Return how long each group waited, of groups all of whose processes tell it."""
        sums: dict[str, float] = {}
        silent = set()
        for (group, pid), last in self._last.items():
            first = self._first.get((group, pid), Reading(0, 0, 0, 0))
            if last.wait_ns is None or first.wait_ns is None:
                silent.add(group)
                continue
            # A thread that ended took its waiting with it: less than before is no time.
            waited = max(0, last.wait_ns - first.wait_ns)
            sums[group] = sums.get(group, 0.0) + waited / 1e9
        return {group: seconds for group, seconds in sums.items() if group not in silent}

    def _read(self, view: CpuView) -> dict[tuple[str, int], Reading]:
        found = {}
        for group, roots in self._groups().items():
            for pid in _with_descendants(roots, view.children):
                if (reading := view.reading(pid)) is not None:
                    # A thread that ended takes its time with it: a sum never goes back.
                    before = self._last.get((group, pid))
                    run = max(reading.run_ns, before.run_ns if before else 0)
                    found[group, pid] = replace(reading, run_ns=run)
        return found


def parse_cores(text: str) -> tuple[CoreTicks, ...]:
    """Parse ``/proc/stat``: one entry a core, in order."""
    cores = []
    for line in text.splitlines():
        words = line.split()
        if not words or not words[0].startswith("cpu") or words[0] == "cpu":
            continue
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[1:9])
        cores.append(CoreTicks(user + nice, system + irq, softirq, steal, idle + iowait))
    return tuple(cores)


def parse_load_average(text: str) -> float | None:
    """Parse ``/proc/loadavg``: the average of the last minute; None if it does not begin so."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None


def parse_process(text: str) -> tuple[int, int, int]:
    """Parse ``/proc/PID/stat``: parent, user ticks, system ticks; the name may hold anything."""
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[11]), int(fields[12])


def _since(now: tuple[CoreTicks, ...], then: tuple[CoreTicks, ...]) -> tuple[CoreTicks, ...]:
    return tuple(core.minus(earlier) for core, earlier in zip(now, then, strict=False))


def _read_process(directory: Path) -> Reading | None:
    try:
        _, user, system = parse_process((directory / "stat").read_text(errors="replace"))
        run = wait = 0
        for task in (directory / "task").iterdir():
            try:
                fields = (task / "schedstat").read_text(encoding="ascii").split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            run += int(fields[0])
            wait += int(fields[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    return Reading(run, user, system, wait)


def _children(proc: Path) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                parent, _, _ = parse_process((entry / "stat").read_text(errors="replace"))
            except (FileNotFoundError, ProcessLookupError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    return children


def _with_descendants(roots: Iterable[int], children: Mapping[int, list[int]]) -> set[int]:
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found
