"""Each endpoint in a machine of its own, joined by the link through TAP."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import NetnsHost
from tunnelmark.hosts.undoing import do_all
from tunnelmark.hosts.vm import VmHost
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_machine import Booting, Machine
from tunnelmark.hosts.vm_payload import ENGINE, PROGRAMS_DIR, Payload
from tunnelmark.hosts.vm_qemu import MachineSpec, Nic
from tunnelmark.lab.machine_cpu import CpuOfAll, MachineCpu
from tunnelmark.lab.place import INIT_PID, NO_LIMITS, DeviceLimit, Joined, carry_only, quieten
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import LabError
from tunnelmark.model.topology import MACS, Topology
from tunnelmark.probes.cpu import CpuSource
from tunnelmark.probes.proc import ProcCpu
from tunnelmark.vmimage.cache import Image

NO_GATEWAY: Final = (
    "a gateway and its clients stand in network namespaces, not each in a virtual machine of its "
    "own (use --place local or machine, and a device without a limit)"
)
_SIDES: Final = {"client": "a", "server": "b"}
_PID_BASES: Final = {"client": 1 << 24, "server": 2 << 24}
"""Above any process id of Linux, which has at most 1 << 22."""
_NO_SPECS: Final[Mapping[str, MachineSpec]] = MappingProxyType({})
_DEFAULT_SPEC: Final = MachineSpec(cpus=1, memory_mib=768)


MakeLimits = Callable[[Mapping[str, VmHost]], Mapping[str, DeviceLimit]]


class EndpointHost(VmHost):
    """A machine that is one endpoint; removing the host ends it."""

    limit: DeviceLimit | None = None

    def remove(self) -> None:
        """End the machine; tolerates being called twice."""
        do_all(self.machine.close, *(() if self.limit is None else (self.limit.remove,)))


class EndpointMachinesPlace:
    """One machine per endpoint; the link is a network namespace of this computer.

    Each endpoint has a CPU of its own, as in a real test bed. The clocks of two machines are two
    clocks: one-way delays between them are as good as what is known of their offset.
    """

    one_clock = False
    limits_kernel = True

    def __init__(
        self,
        ledger: Ledger,
        *,
        engine: str,
        image: Image,
        payload: Payload,
        choice: Choice,
        specs: Mapping[str, MachineSpec] = _NO_SPECS,
        logs: Path | None = None,
        limits: MakeLimits = lambda _hosts: {},
    ) -> None:
        """``engine`` is this computer's, for the link; ``specs`` is by role (client, server).

        ``limits`` makes those of the machines' CPUs, by role; they go with the machines.
        """
        self._make_limits = limits
        self.engine = str(PROGRAMS_DIR / ENGINE)
        self.owner_pid = INIT_PID
        self.link_engine = engine
        self.link_owner_pid = os.getpid()
        emulated = choice.accelerator == "tcg"
        self.stratum = Stratum.EMULATED if emulated else Stratum.VIRTUALIZED
        cpu = self.stratum.value
        self.placed_on = f"one machine per endpoint with Linux {image.kernel_release}, {cpu} CPU"
        self._ledger, self._image, self._payload, self._choice = ledger, image, payload, choice
        self._specs = specs
        self._logs = logs
        self._machines: dict[str, Machine] = {}
        self.limits: Mapping[str, DeviceLimit] = NO_LIMITS

    @property
    def machines(self) -> Mapping[str, Machine]:
        """Machines of the lab that was made last, by role."""
        return MappingProxyType(self._machines)

    @property
    def cpu(self) -> CpuSource:
        """The cores of both machines, and the processes of the link beside theirs."""
        inside = [MachineCpu(m, pid_base=_PID_BASES[role]) for role, m in self._machines.items()]
        return CpuOfAll(inside, ProcCpu())

    def allow_congestion(self, name: str) -> bool:  # noqa: ARG002 - as places have it
        """Each has the first namespaces of its machine, where nothing is withheld."""
        return False

    def make(
        self,
        topology: Topology,
        *,
        through_link: bool,
        offloads: bool = False,  # noqa: ARG002 - their cards have none that the other's would take
    ) -> Joined:
        """Boot both machines at a time and join them."""
        if topology.behind_router:
            raise LabError(
                "a router runs in network namespaces only, not between two virtual machines (use "
                "--place local or machine)"
            )
        if topology.clients is not None:
            raise LabError(NO_GATEWAY)
        mtu_bytes = topology.mtu_bytes
        booting: dict[str, Booting] = {}
        self._machines, self.limits = {}, NO_LIMITS
        link = NetnsHost(self._ledger, "link", logs=self._logs)
        try:
            for side in _SIDES.values():
                link.run(["ip", "tuntap", "add", "dev", side, "mode", "tap"])
                link.run(["ip", "link", "set", "dev", side, "mtu", str(mtu_bytes)])
                carry_only(link, side)
            if not through_link:
                _bridge(link)
            for role in _SIDES:
                booting[role] = self._begin(link, role)
            for role in _SIDES:
                self._machines[role] = booting[role].machine()
            hosts = {role: self._host(role, mtu_bytes) for role in _SIDES}
            self._limit(hosts)
        except BaseException:
            self._undo(link, booting)
            raise
        return Joined(hosts["client"], hosts["server"], link)

    def _undo(self, link: NetnsHost, booting: Mapping[str, Booting]) -> None:
        """Remove what was made: names are the run's, so the next attempt needs them."""
        machines = (
            self._machines[role].close if role in self._machines else begun.cancel
            for role, begun in booting.items()
        )
        limits = (limit.remove for limit in self.limits.values())
        with suppress(Exception):
            do_all(*machines, *limits, link.stop_all, link.remove)
        self._machines, self.limits = {}, NO_LIMITS

    def _limit(self, hosts: Mapping[str, EndpointHost]) -> None:
        self.limits = limits = self._make_limits(hosts)
        for role, machine in self._machines.items():
            if role in limits:
                hosts[role].limit = limits[role]
            else:
                machine.go_first()

    def _begin(self, link: NetnsHost, role: str) -> Booting:
        spec = self._specs.get(role, _DEFAULT_SPEC)
        return Booting(
            link,
            name=role,
            image=self._image,
            payload=self._payload,
            choice=self._choice,
            spec=replace(spec, nics=(Nic(_SIDES[role], MACS[role]),)),
        )

    def _host(self, role: str, mtu_bytes: int) -> EndpointHost:
        host = EndpointHost(
            self._machines[role],
            name=role,
            unique=f"{self._ledger.run_id}-{role}",
            log_dir=self._logs or Path(PurePosixPath(self._ledger.work_dir) / "machine-logs"),
            pid_base=_PID_BASES[role],
        )
        host.run(["ip", "link", "set", "dev", "eth0", "mtu", str(mtu_bytes)])
        quieten(host, "eth0")
        return host


def _bridge(link: NetnsHost) -> None:
    """Join both sides without an emulator between them."""
    made = link.run(["ip", "link", "add", "dev", "br", "type", "bridge"], check=False)
    if made.returncode != 0:
        raise LabError(f"machines without a link between them need a bridge: {made.last_words()}")
    for side in _SIDES.values():
        link.run(["ip", "link", "set", "dev", side, "master", "br"])
    carry_only(link, "br")
