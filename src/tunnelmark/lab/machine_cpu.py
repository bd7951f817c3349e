"""CPU time inside machines, as the CPU probe reads it."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tunnelmark.hosts.agent import Agent
from tunnelmark.probes.cpu import (
    TICKS_PER_S,
    CoreTicks,
    CpuSource,
    CpuView,
    Reading,
    ThreadReading,
    parse_cores,
)

_AGENT: Final = 1
_MOST_CORES: Final = 1 << 13
"""Of one machine: Linux takes no more on any architecture."""


class MachineCpu:
    """CPU time inside a machine, or of our programs on a host over SSH, read by the agent there."""

    def __init__(
        self,
        machine: Agent,
        *,
        pid_base: int = 0,
        underlying: Callable[[], tuple[CoreTicks, ...]] = tuple,
    ) -> None:
        """``pid_base`` is that of the hosts in it; ``underlying`` reads the cores that run it."""
        self._machine = machine
        self._base = pid_base
        self._underlying = underlying

    def look(self) -> CpuView:
        """Read all processes and cores at one moment."""
        snapshot, base = self._machine.cpu(), self._base
        children: dict[int, list[int]] = {}
        for pid, usage in snapshot.processes.items():
            children.setdefault(base + usage.parent, []).append(base + pid)

        def reading(pid: int) -> Reading | None:
            # One that has ended is not lost with what it used since it was last looked at.
            usage = snapshot.processes.get(pid - base) or snapshot.ended.get(pid - base)
            if usage is None:
                return None
            threads = {tid: ThreadReading(run_ns) for tid, run_ns in usage.threads}
            return Reading(None, usage.user_ticks, usage.system_ticks, threads, usage.stopped)

        def programs_s(without: set[int]) -> float:
            ticks = sum(
                usage.user_ticks + usage.system_ticks + usage.waited_ticks
                for pid, usage in snapshot.processes.items()
                if base + pid not in without
            )
            return ticks / TICKS_PER_S

        return CpuView(
            parse_cores(snapshot.stat, snapshot.time_ns),
            lambda pid: children.get(pid, ()),
            reading,
            programs_s,
            (base + _AGENT,),
            underlying=self._underlying,
        )


class CpuOfAll:
    """Several machines as one: their cores one after the other, their processes side by side.

    ``computer`` is what runs the machines: its processes count, but its cores would count
    everything twice.
    """

    def __init__(self, machines: Sequence[CpuSource], computer: CpuSource | None = None) -> None:
        """Process ids of the sources must differ."""
        self._machines = tuple(machines)
        self._computer = computer

    def look(self) -> CpuView:
        """Read them one after the other."""
        seen = [source.look() for source in self._machines]
        under = [] if self._computer is None else [self._computer.look()]
        views = [*seen, *under]

        def children(pid: int) -> Iterable[int]:
            return [child for view in views for child in view.children(pid)]

        def reading(pid: int) -> Reading | None:
            return next((r for view in views if (r := view.reading(pid)) is not None), None)

        def programs_s(without: set[int]) -> float | None:
            found = [view.programs_s(without) for view in seen]
            known = [used_s for used_s in found if used_s is not None]
            return sum(known) if len(known) == len(found) else None

        cores = (
            dataclasses.replace(core, number=core.number + place * _MOST_CORES)
            for place, view in enumerate(seen)
            for core in view.cores
        )
        return CpuView(
            tuple(cores),
            children,
            reading,
            programs_s,
            tuple(pid for view in seen for pid in view.own),
            underlying=lambda: tuple(core for view in under for core in view.cores),
        )
