"""CPU during a trial: of the machine, of groups of processes, of each core and thread.

How busy the cores were is their time less what they were idle, which the kernel keeps exactly
(``/proc/stat``; NO_HZ), not the sum of user, system and softirq, which it samples at clock ticks.
So whatever interrupts a core counts, in whose name it ever ran. What a process ran is exact as the
scheduler has it. Where the kernel does not account interrupt time apart
(``CONFIG_IRQ_TIME_ACCOUNTING``, see lab/environment.py), a softirq that interrupts a process counts
as that process's time; where it does, as nobody's. Both are in the time of the cores.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
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
    clock_s: float
    """The same on the clock of its machine, when it was read."""
    number: int = 0
    """As the kernel counts them; one that is off has a number and no ticks."""

    @property
    def total(self) -> int:
        """All ticks; interrupts count as system."""
        return self.user + self.system + self.softirq + self.steal + self.idle

    @property
    def busy_s(self) -> float:
        """Time in which it was not idle, stolen time not counted."""
        return max(0.0, self.clock_s - (self.idle + self.steal) / TICKS_PER_S)

    def minus(self, earlier: "CoreTicks") -> "CoreTicks":
        """Return the ticks since an earlier reading."""
        return CoreTicks(
            self.user - earlier.user,
            self.system - earlier.system,
            self.softirq - earlier.softirq,
            self.steal - earlier.steal,
            self.idle - earlier.idle,
            self.clock_s - earlier.clock_s,
            self.number,
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
    """Time in which they could have run and no core was free for them; None if not known, or
    without a thread."""
    busiest_thread_s: float | None = None
    """What the thread ran that ran most; None without a thread."""
    unseen: int = 0
    """Processes that came and went between two readings: what they used is not in here."""
    stopped: int = 0
    """Processes that a reading found stopped, by a signal or a tracer."""


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
    others_s: float | None = 0.0
    """CPU seconds of programs on these cores that are in no group; None: they are not seen."""
    own_s: float = 0.0
    """CPU seconds of this program, or of the agent that reads for it."""
    underlying: tuple[CoreTicks, ...] = ()
    """Cores of the computer that runs the machines whose cores these are, if it is another."""

    @property
    def softirq_ratio(self) -> float | None:
        """Share of all cores' time spent in softirq; None without a tick."""
        total = sum(core.total for core in self.cores)
        return sum(core.softirq for core in self.cores) / total if total else None

    @property
    def softirq_s(self) -> float:
        """Seconds of all cores in which ticks found them in softirq."""
        return sum(core.softirq for core in self.cores) / TICKS_PER_S

    @property
    def machine_ratio(self) -> float | None:
        """Busy share of all cores, stolen time not counted as busy; None without time."""
        clock_s = sum(core.clock_s for core in self.cores)
        return self.busy_s / clock_s if clock_s > 0 else None

    @property
    def busy_s(self) -> float:
        """Seconds of all cores in which they were busy, stolen time not counted."""
        return sum(core.busy_s for core in self.cores)

    @property
    def lab_s(self) -> float | None:
        """The same without programs that are none of the lab's: what is left is the lab's work.

        Interrupts and threads of the kernel are in it, in whose name they ever ran. None where
        programs of others are not seen.
        """
        if self.others_s is None:
            return None
        return max(0.0, self.busy_s - self.others_s - self.own_s)

    def core_max_ratio(self, traffic_s: float) -> float | None:
        """Return the busy share of the busiest core while traffic was under way.

        When that was within the trial is not known here: as many of a core's seconds as it took
        are taken, the busiest. Without seconds it is of the whole trial.
        """
        shares = (self.core_ratio(core.number, traffic_s) for core in self.cores)
        return max((share for share in shares if share is not None), default=None)

    def core_ratio(self, number: int, traffic_s: float) -> float | None:
        """Return the same for one core by its number; None without time, or while it was off."""
        seconds = max(1, int(traffic_s))
        if found := sorted(self._by_core.get(number, ()), reverse=True)[:seconds]:
            return sum(found) / len(found)
        core = self.core(number)
        return core.busy_s / core.clock_s if core is not None and core.clock_s > 0 else None

    @cached_property
    def _by_core(self) -> Mapping[int, Sequence[float]]:
        """Busy shares of each core's seconds, by its number: an hour of 128 cores is read once."""
        found: dict[int, list[float]] = {}
        for second in self.seconds:
            for core in second.cores:
                if core.clock_s > 0:
                    found.setdefault(core.number, []).append(core.busy_s / core.clock_s)
        return found

    def core(self, number: int) -> CoreTicks | None:
        """Return what one core did, by its number; None if it was off."""
        return next((core for core in self.cores if core.number == number), None)

    @property
    def steal_ratio(self) -> float | None:
        """Share of time taken by the hypervisor, from these cores or from those that run them.

        A machine does not see what is taken from the computer that it runs on.
        """
        shares = (
            sum(core.steal for core in cores) / total
            for cores in (self.cores, self.underlying)
            if (total := sum(core.total for core in cores))
        )
        return max(shares, default=None)


@dataclass(frozen=True)
class ThreadReading:
    """What one thread has used since its start."""

    run_ns: int
    wait_ns: int | None = None
    """Time on a run queue; None where it is not read."""


@dataclass(frozen=True)
class Reading:
    """What one process has used since its start."""

    run_ns: int | None
    """Of all its threads, of those too that ended; None: it is the sum of the threads."""
    user: int
    """Clock ticks."""
    system: int
    """Clock ticks."""
    threads: Mapping[int, ThreadReading] = field(default_factory=dict)
    """Those that live, by their id."""
    stopped: bool = False
    """By a signal or a tracer."""


@dataclass(frozen=True)
class CpuView:
    """What is seen at one moment."""

    cores: tuple[CoreTicks, ...]
    children: Callable[[int], Iterable[int]]
    """Process id to those of its children."""
    reading: Callable[[int], Reading | None]
    """Process id to what it has used; None if it is gone."""
    programs_s: Callable[[set[int]], float | None] = lambda _without: 0.0
    """CPU seconds that all programs but these ever used; what ended is in who waited for it.

    None where not all programs are seen that run on the cores.
    """
    own: Sequence[int] = ()
    """Processes that look: this one, or the agent of a machine."""
    load_average: float | None = None
    """Of the last minute, as ``/proc/loadavg`` has it; None where it is not read."""
    underlying: Callable[[], tuple[CoreTicks, ...]] = tuple
    """Cores of the computer that runs the machines which are looked at, if it is another."""


class CpuSource(Protocol):
    """Where the CPU time of processes is read: this machine, or one that runs on it."""

    def look(self) -> CpuView:
        """Read now."""


class CpuProbe:
    """Reads before and after; ``sample`` in between sees what comes and goes."""

    def __init__(
        self, groups: Callable[[], Mapping[str, Iterable[int]]], source: CpuSource
    ) -> None:
        """Watch groups of process ids (each with its descendants); asked again at each reading."""
        self._groups = groups
        self._source = source
        self._first: dict[int, Reading] = {}
        self._last: dict[int, Reading] = {}
        self._members: dict[str, set[int]] = {}
        self._earlier: set[int] = set()
        self._stopped: set[int] = set()
        self._cores: tuple[CoreTicks, ...] = ()
        self._underlying: tuple[CoreTicks, ...] = ()
        self._others_s: float | None = 0.0
        self._own_s = 0.0
        self._start_ns = 0
        self._second_ns = 0
        self._second_cores: tuple[CoreTicks, ...] = ()
        self._seconds: deque[CpuSecond] = deque(maxlen=_MOST_SECONDS)

    def start(self, now_ns: int) -> None:
        """Begin at ``now_ns`` (monotonic)."""
        self._start_ns = self._second_ns = now_ns
        view = self._source.look()
        self._cores = self._second_cores = view.cores
        self._underlying = view.underlying()
        self._others_s, self._own_s = self._beside(view, self._read(view))
        self._first = dict(self._last)
        # What was started before and is not there any more used nothing since.
        self._earlier = set().union(*self._members.values())

    def sample(self, now_ns: int) -> None:
        """Read in between; the cores are noted once a second."""
        view = self._source.look()
        self._read(view)
        if now_ns - self._second_ns < _SECOND_NS:
            return
        used = _since(view.cores, self._second_cores)
        end_s = (now_ns - self._start_ns) / 1e9
        self._seconds.append(CpuSecond(end_s, used, view.load_average))
        self._second_ns, self._second_cores = now_ns, view.cores

    def stop(self, now_ns: int) -> CpuUsage:
        """Return what was used since the start."""
        view = self._source.look()
        others_s, own_s = self._beside(view, self._read(view))
        known = others_s is not None and self._others_s is not None
        return CpuUsage(
            (now_ns - self._start_ns) / 1e9,
            {name: self._usage(pids) for name, pids in self._members.items()},
            _since(view.cores, self._cores),
            tuple(self._seconds),
            view.load_average,
            max(0.0, (others_s or 0.0) - (self._others_s or 0.0)) if known else None,
            own_s - self._own_s,
            _since(view.underlying(), self._underlying),
        )

    def _usage(self, pids: set[int]) -> GroupUsage:
        run_s = user_s = system_s = wait_s = 0.0
        unseen = 0
        tells = True
        threads_s = []
        for pid in pids:
            if (last := self._last.get(pid)) is None:
                unseen += pid not in self._earlier
                continue
            first = self._first.get(pid, _NOTHING)
            run_s += (_run_ns(last) - _run_ns(first)) / 1e9
            user_s += (last.user - first.user) / TICKS_PER_S
            system_s += (last.system - first.system) / TICKS_PER_S
            for tid, thread in last.threads.items():
                before = first.threads.get(tid, _NEW)
                threads_s.append((thread.run_ns - before.run_ns) / 1e9)
                tells &= thread.wait_ns is not None
                wait_s += ((thread.wait_ns or 0) - (before.wait_ns or 0)) / 1e9
        wait = wait_s if tells and threads_s else None
        stopped = len(self._stopped.intersection(pids))
        busiest_s = max(threads_s, default=None)
        return GroupUsage(run_s, user_s, system_s, wait, busiest_s, unseen, stopped)

    def _read(self, view: CpuView) -> set[int]:
        """Read every process of the groups; return those that live."""
        alive: set[int] = set()
        for group, roots in self._groups().items():
            pids = _with_descendants(roots, view.children)
            self._members.setdefault(group, set()).update(pids)
            alive |= pids
        for pid in alive:
            if (reading := view.reading(pid)) is not None:
                before = self._last.get(pid, _NOTHING)
                # A thread that ended stays as it was last seen.
                threads = {**before.threads, **reading.threads}
                self._last[pid] = replace(reading, threads=threads)
                if reading.stopped:
                    self._stopped.add(pid)
        return alive

    def _beside(self, view: CpuView, groups: set[int]) -> tuple[float | None, float]:
        """Return the CPU seconds so far of programs in no group, and of those that look."""
        readings = [view.reading(pid) for pid in view.own]
        own_ns = sum(_run_ns(reading) for reading in readings if reading is not None)
        return view.programs_s(groups | set(view.own)), own_ns / 1e9


_NEW: Final = ThreadReading(0, 0)
_NOTHING: Final = Reading(0, 0, 0, MappingProxyType({}))


def parse_cores(text: str, at_ns: int) -> tuple[CoreTicks, ...]:
    """Parse ``/proc/stat``, read at ``at_ns`` of its machine: one entry a core, in order."""
    cores = []
    for line in text.splitlines():
        words = line.split()
        if not words or not words[0].startswith("cpu") or words[0] == "cpu":
            continue
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[1:9])
        ticks = (user + nice, system + irq, softirq, steal, idle + iowait)
        # A core that is off has no line, and those behind it keep their numbers.
        cores.append(CoreTicks(*ticks, at_ns / 1e9, int(words[0].removeprefix("cpu"))))
    return tuple(cores)


def _run_ns(reading: Reading) -> int:
    if reading.run_ns is not None:
        return reading.run_ns
    return sum(thread.run_ns for thread in reading.threads.values())


def _since(now: tuple[CoreTicks, ...], then: tuple[CoreTicks, ...]) -> tuple[CoreTicks, ...]:
    earlier = {core.number: core for core in then}
    # Of what was switched on or off meanwhile only a part of the time is known.
    return tuple(core.minus(earlier[core.number]) for core in now if core.number in earlier)


def _with_descendants(roots: Iterable[int], children: Callable[[int], Iterable[int]]) -> set[int]:
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children(pid)
    return found
