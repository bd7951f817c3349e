"""CPU time inside machines, as the CPU probe reads it."""

from collections.abc import Sequence

from tunnelmark.hosts.vm_machine import Machine
from tunnelmark.probes.cpu import CpuSource, CpuView, Reading


class MachineCpu:
    """CPU time inside a machine, read by its agent."""

    def __init__(self, machine: Machine, *, pid_base: int = 0) -> None:
        """``pid_base`` is that of the hosts in this machine."""
        self._machine = machine
        self._base = pid_base

    def look(self) -> CpuView:
        """Read all processes and cores at one moment."""
        snapshot = self._machine.cpu()
        children: dict[int, list[int]] = {}
        for pid, usage in snapshot.processes.items():
            children.setdefault(self._base + usage.parent, []).append(self._base + pid)

        def reading(pid: int) -> Reading | None:
            usage = snapshot.processes.get(pid - self._base)
            if usage is None:
                return None
            return Reading(usage.run_ns, usage.user_ticks, usage.system_ticks)

        return CpuView(snapshot.stat, children, reading)


class CpuOfAll:
    """Several machines as one: their cores one after the other, their processes side by side.

    ``unseen`` are sources whose processes count but whose cores do not: those of the computer that
    emulates the machines would count everything twice.
    """

    def __init__(self, machines: Sequence[CpuSource], unseen: Sequence[CpuSource] = ()) -> None:
        """Process ids of the sources must differ."""
        self._machines = tuple(machines)
        self._unseen = tuple(unseen)

    def look(self) -> CpuView:
        """Read them one after the other."""
        seen = [source.look() for source in self._machines]
        views = [*seen, *(source.look() for source in self._unseen)]
        children = {pid: found for view in views for pid, found in view.children.items()}

        def reading(pid: int) -> Reading | None:
            return next((r for view in views if (r := view.reading(pid)) is not None), None)

        return CpuView("".join(view.stat for view in seen), children, reading)
