"""A lab on two real hosts: each end in a network namespace of its host, the line between them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tunnelmark.hosts.inventory import ROLES, Role
from tunnelmark.hosts.ssh_host import SshNetnsHost
from tunnelmark.hosts.undoing import do_all
from tunnelmark.lab import line
from tunnelmark.lab.computers import PID_BASES, Computer
from tunnelmark.lab.line_ends import Ends, LineEnd, other_role
from tunnelmark.lab.machine_cpu import CpuOfAll, MachineCpu
from tunnelmark.lab.place import (
    INIT_PID,
    NO_LIMITS,
    DeviceLimit,
    Joined,
    LineAddress,
    OnLine,
    carry_only,
    quieten,
)
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import LabError
from tunnelmark.model.together import together
from tunnelmark.model.topology import Topology
from tunnelmark.probes.cpu import TICKS_PER_S, CpuSource, CpuView
from tunnelmark.probes.proc import is_kthreadd

NO_GATEWAY: Final = (
    "a gateway and its clients stand in network namespaces of one computer or virtual machine, "
    "not on two hosts over SSH (leave out --hosts)"
)
_NEAR, _FAR = "a", "b"
"""The emulator's interfaces: towards the client, and on the line."""
_UTIME: Final = 13
"""proc(5): fields 14 to 17 are user and system time, own and of children that were waited for."""


class HostsPlace:
    """Two hosts that are connected. Labs come and go on them; whoever connected them ends that."""

    one_clock = False
    limits_kernel = False
    stratum = Stratum.HOSTS
    owner_pid = link_owner_pid = INIT_PID

    def __init__(
        self, computers: Mapping[Role, Computer], ends: Ends, run_id: str, *, logs: Path
    ) -> None:
        """Take hosts that are connected; ``logs`` is where the logs of a lab's programs go."""
        self._computers = computers
        self.ends = ends
        self._run_id = run_id
        self._logs = logs
        self.limits: Mapping[str, DeviceLimit] = NO_LIMITS
        # Both have it at the same place, whose name is the run's.
        self.engine = self.link_engine = str(computers["client"].agent.engine)
        kernels = {one.agent.kernel for one in computers.values()}
        self.placed_on = f"two hosts over SSH with Linux {' and '.join(sorted(kernels))}"
        self.cpu: CpuSource = CpuOfAll([_HostCpu(one) for one in computers.values()])

    def allow_congestion(self, name: str) -> bool:  # noqa: ARG002 - as places have it
        """Leave the hosts as they are."""
        return False

    def make(self, topology: Topology, *, through_link: bool, offloads: bool = False) -> Joined:
        """Put a namespace of each host on the line, the emulator between it and the client."""
        if topology.behind_router:
            raise LabError("a router runs in network namespaces of this computer only")
        if topology.clients is not None:
            raise LabError(NO_GATEWAY)
        mtu_bytes = topology.mtu_bytes
        made: list[SshNetnsHost] = []

        def namespace(role: Role, name: str) -> SshNetnsHost:
            host = SshNetnsHost(
                self._computers[role].agent,
                name=name,
                unique=f"{self._run_id}-{name}",
                log_dir=self._logs,
                pid_base=PID_BASES[role],
            )
            made.append(host)
            return host

        try:
            ends = {role: namespace(role, role) for role in ROLES}
            link = namespace("client", "link")
            on_line: dict[Role, _Station] = {
                "client": _Station(link, _FAR) if through_link else _Station(ends["client"]),
                "server": _Station(ends["server"]),
            }
            macs = {role: self._attach(role, on_line[role], mtu_bytes) for role in ROLES}
            for role in () if offloads else ROLES:
                quieten(on_line[role].host, on_line[role].interface)
            hops = together(*(partial(self._settle, role, on_line[role]) for role in ROLES))
            if through_link:
                self._insert(link, ends["client"], macs["client"], hops[0], mtu_bytes)
        except BaseException:
            with suppress(Exception):
                do_all(*(host.remove for host in made))
            raise
        both = OnLine(**{role: _address(self.ends[role]) for role in ROLES})
        return Joined(ends["client"], ends["server"], link, on_line=both)

    def _attach(self, role: Role, station: "_Station", mtu_bytes: int) -> str:
        """Put a station on the line with its address, and return its MAC."""
        computer, end = self._computers[role].host, self.ends[role]
        mac = line.attach(
            computer,
            station.host,
            end,
            role,
            parent=line.parent_of(computer, end, self.ends[other_role(role)]),
            interface=station.interface,
            mtu_bytes=mtu_bytes,
        )
        line.address(station.host, end, mac, interface=station.interface)
        return mac

    def _settle(self, role: Role, station: "_Station") -> str | None:
        end, other = self.ends[role], self.ends[other_role(role)]
        return line.settle(station.host, end, other, interface=station.interface)

    def _insert(
        self, link: SshNetnsHost, end: SshNetnsHost, mac: str, hop: str | None, mtu_bytes: int
    ) -> None:
        """Let the end take the place of the emulator's side on the line: its address, its MAC."""
        own, mtu = self.ends["client"], ["mtu", str(mtu_bytes)]
        link.run(["ip", "address", "flush", "dev", _FAR])
        peer = ["peer", "name", _NEAR, *mtu, "netns", str(link.holder_pid)]
        end.run(["ip", "link", "add", "name", line.ON_LINE, *mtu, "type", "veth", *peer])
        for interface in (_NEAR, _FAR):
            carry_only(link, interface)
        quieten(end, line.ON_LINE)
        line.address(end, own, mac)
        if hop is not None:
            line.keep(end, line.next_hop(own, self.ends["server"]), hop)


def _address(end: LineEnd) -> LineAddress:
    return LineAddress(str(end.own.ip), str(end.reached) if end.behind_nat else None)


@dataclass(frozen=True)
class _Station:
    """What has an address on the line."""

    host: SshNetnsHost
    interface: str = line.ON_LINE


class _HostCpu:
    """CPU time of a host: our programs by the agent, all others by the host's own ``/proc``."""

    def __init__(self, computer: Computer) -> None:
        self._host = computer.host
        self._proc = str(computer.agent.directory / "proc")
        self._inside = MachineCpu(computer.agent, pid_base=PID_BASES[computer.role])

    def look(self) -> CpuView:
        """Read all of it at one moment; what others used when it is asked for."""
        view = self._inside.look()

        def programs_s(without: set[int]) -> float | None:
            if (all_s := self._all_s()) is None:
                return None
            ours_s, others_s = view.programs_s(set()) or 0.0, view.programs_s(without) or 0.0
            return max(0.0, all_s - ours_s) + others_s

        return CpuView(view.cores, view.children, view.reading, programs_s, view.own)

    def _all_s(self) -> float | None:
        """Return the CPU seconds that all programs there have used, without its kernel's.

        None where they are not seen: in a container.
        """
        words = ["sh", "-c", 'cat "$1"/[0-9]*/stat 2>/dev/null', "sh", self._proc]
        lines = self._host.run(words, check=False).text().splitlines()
        return sum(map(_ticks, lines)) / TICKS_PER_S if any(map(is_kthreadd, lines)) else None


def _ticks(stat: str) -> int:
    """Return what one process used, by its line of ``/proc/PID/stat``; 0 for the kernel's own."""
    fields = stat.rpartition(")")[2].split()
    ours = fields[1:2] != ["2"] and not stat.startswith("2 ")
    numbers = fields[_UTIME - 2 : _UTIME + 2]
    return sum(map(int, numbers)) if ours and all(n.isdecimal() for n in numbers) else 0
