"""Devices of a run: calibrated once each, then set as limits on the hosts that stand on them."""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tunnelmark.devices.profiles import Device
from tunnelmark.devices.registry import DEVICES, device_params, roles_of
from tunnelmark.hosts.cgroup import Controller, CpuGroup, Quota, Throttled, find_controller
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.hosts.vm import VmHost
from tunnelmark.hosts.vm_machine import Machine
from tunnelmark.hosts.vm_qemu import MachineSpec
from tunnelmark.lab.benchmarks import Bench, Goal, goal_of, need_of
from tunnelmark.lab.calibrate import Calibration, calibrate
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed, Host, Need
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption

# The first argument is the file that a process enters a group by; nothing is put together into a
# command line.
_ENTER: Final = 'echo $$ > "$1" || exit 126; shift; exec "$@"'
_NEED: Final = Need(programs={"openssl": "openssl", "dd": "coreutils", "taskset": "util-linux"})
# QEMU names them so with debug-threads=on.
_CPU_THREAD: Final = re.compile(r"^CPU (\d{1,3})/(?:TCG|KVM)$")
_OWED_PERIODS: Final = 4
_MACHINE_MIB: Final = 768
"""A device's memory is no limit: the machine needs this much for its own system."""


def machine_specs(spec: DriverSpec) -> dict[str, MachineSpec]:
    """Return the hardware of machines that stand on a device, by role."""
    cores = DEVICES[spec.kind].cores
    return {
        role: MachineSpec(cpus=cores, memory_mib=_MACHINE_MIB, plain_cpu=True)
        for role in roles_of(spec)
    }


class GroupLimit:
    """The CPU limit of one endpoint in namespaces of this computer.

    A device of one core is one control group. One of several is a group for each program in a
    group for all: a program of one thread gets one core of the device, however many it has.
    """

    def __init__(  # noqa: PLR0917 - what it is made of
        self,
        ledger: Ledger,
        controller: Controller,
        role: str,
        found: Calibration,
        engine: str,
        cpus: Sequence[int],
        beside: str = "",
    ) -> None:
        """Make the group; it is in the ledger before it exists. ``engine`` is not held back.

        ``beside`` says who else has no other place to run than the cores of the device, ``cpus``.
        """
        self.calibration = found
        self.cpus = tuple(cpus)
        self._beside = beside
        self._engine = engine
        self._cores = found.device.cores
        self._group = controller.group(f"{ledger.run_id}-{role}")
        self._programs: list[CpuGroup] = []
        self._number = itertools.count()
        _announce(ledger, self._group)
        self._group.make()
        try:
            self._group.limit(found.quota.times(self._cores))
        except BaseException:
            self._group.remove()
            raise

    @property
    def capacity(self) -> float:
        """Cores of this computer that the whole device is worth."""
        return self.calibration.quota.share * self._cores

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs see of their CPU."""
        return self.calibration.environment

    engine_wait_ns = 0
    """The engine is not on the device."""

    def describe(self) -> str:
        """Return how it was calibrated and which cores it has, for the report."""
        which = "cores" if len(self.cpus) > 1 else "core"
        shared = f", shared with {self._beside}" if self._beside else ""
        numbers = ", ".join(map(str, self.cpus))
        return f"{self.calibration.describe()}; on {which} {numbers}{shared}"

    def applies(self, argv: Sequence[str]) -> bool:
        """Say whether a program is held back: all but the engine, which measures."""
        return not argv or argv[0] != self._engine

    def words(self, argv: Sequence[str]) -> list[str]:
        """Return the words that start a program under the limit."""
        group = self._group
        if self._cores > 1:
            group = self._group.inner(next(self._number))
            group.make()
            group.limit(self.calibration.quota)
            self._programs.append(group)
        return _entering(group, self.cpus, argv)

    def settle(self) -> None:
        """Give each program as many cores of the device as it has threads to use them."""
        for group in self._programs:
            if (threads := group.threads()) > 0:
                group.limit(self.calibration.quota.times(min(threads, self._cores)))

    def run_ns(self) -> None:
        """Return nothing: what its programs have run is read process by process."""

    def throttled(self) -> dict[str, Throttled]:
        """Return how often the device and each of its programs used up their CPU."""
        return _throttled((self._group, *self._programs))

    def remove(self) -> None:
        """End what is left in it and remove it; tolerates being called twice."""
        self._group.remove()


class MachineLimit:
    """The CPU limit of a machine that is one endpoint: of the threads that run its CPUs.

    What QEMU does beside them, such as moving frames, is not work of the device.
    """

    cpus: Sequence[int] = ()
    """They run wherever this computer has room."""

    def __init__(  # noqa: PLR0917 - what it is made of
        self,
        ledger: Ledger,
        controller: Controller,
        role: str,
        device: Device,
        machine: Machine,
        calibrated: "Callable[[Bench, Callable[[Quota | None], None]], Calibration]",
        host: Host,
    ) -> None:
        """Make the groups, then calibrate by programs of ``host``, which is the machine."""
        self._threads = cpu_threads(machine.facts.qemu_pid)
        if len(self._threads) != device.cores:
            raise LabError(
                f"device {device.kind}: QEMU has {len(self._threads)} threads that run a CPU, not "
                f"{device.cores}"
            )
        self._group = controller.group(f"{ledger.run_id}-{role}")
        _announce(ledger, self._group)
        self._group.make()
        try:
            self._group.add(machine.facts.qemu_pid)
            self._cores = [self._group.inner(number) for number in range(device.cores)]
            for core, thread in zip(self._cores, self._threads, strict=True):
                core.make(threaded=True)
                core.add_thread(thread)

            def bench(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> Completed:
                return host.run(argv, env=env, timeout_s=limit_s, check=False)

            self.calibration = calibrated(bench, self._limit)
            self._limit(self.calibration.quota)
        except BaseException:
            self.remove()  # the machine with it: nothing else would take it out of the group
            raise

    @property
    def capacity(self) -> float:
        """Cores of this computer that the whole device is worth."""
        return self.calibration.quota.share * len(self._cores)

    @property
    def engine_wait_ns(self) -> int:
        """How long the engine may wait for the machine's CPU.

        A timer tick of 4 ms may run over the shortest quota, 1 ms: the three that are owed are
        three periods without CPU, after what is left of the first.
        """
        return _OWED_PERIODS * self.calibration.quota.period_us * 1000

    def describe(self) -> str:
        """Return how it was calibrated, for the report."""
        return f"in a machine: {self.calibration.describe()}"

    def applies(self, argv: Sequence[str]) -> bool:  # noqa: ARG002 - all alike
        """Say that everything in the machine is held back, the engine too."""
        return True

    def run_ns(self) -> int:
        """Return what the machine's CPUs have run since they were made."""
        total = 0
        for thread in self._threads:
            with contextlib.suppress(OSError, IndexError):
                path = Path(f"/proc/{thread}/schedstat")
                total += int(path.read_text(encoding="ascii").split()[0])
        return total

    def settle(self) -> None:
        """Do nothing: each CPU has its share from the start."""

    def throttled(self) -> dict[str, Throttled]:
        """Return how often each of the machine's CPUs was used up."""
        return _throttled(self._cores)

    def remove(self) -> None:
        """End the machine, if it has not ended, and remove it; tolerates being called twice."""
        self._group.remove()

    def _limit(self, quota: Quota | None) -> None:
        for core in self._cores:
            core.limit(quota)


def cores_for(roles: Sequence[str], each: int, own: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the cores of this computer for each endpoint's device, from the last one down.

    The endpoints have none in common where there are enough; the first core is the last to be
    taken, so that the emulator and what measures have it. ``each`` device has so many cores.
    """
    found = {}
    left = list(own)
    for role in roles:
        if len(left) < each:
            left = list(own)
        found[role] = tuple(left[-each:])
        del left[-each:]
    return found


def beside_devices(cores: Mapping[str, Sequence[int]], own: Sequence[int]) -> dict[str, str]:
    """Return who shares the cores of each endpoint's device for want of others; "": nobody.

    ``cores`` as ``cores_for`` gives them, of the cores ``own``.
    """
    taken = {core for numbers in cores.values() for core in numbers}
    measuring = [] if set(own) - taken else ["the emulator and what measures"]
    found = {}
    for role, numbers in cores.items():
        met = [
            f"the {other}'s device"
            for other, theirs in cores.items()
            if other != role and set(numbers) & set(theirs)
        ]
        found[role] = ", ".join(met + measuring)
    return found


def cpu_threads(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return the threads of a QEMU that run its guest's CPUs, by the CPU's number."""
    found = {}
    for task in (proc / str(pid) / "task").iterdir():
        name = (task / "comm").read_text(encoding="ascii", errors="replace")
        if match := _CPU_THREAD.match(name):
            found[int(match[1])] = int(task.name)
    return [found[number] for number in sorted(found)]


class Devices:
    """The devices of a run. Each is calibrated when it is first needed, once for the run."""

    def __init__(
        self,
        ledger: Ledger,
        local: LocalHost,
        *,
        engine: str,
        say: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """Calibrate by programs of ``local``, this computer; ``say`` is called before."""
        self._ledger, self._local, self._engine, self._say = ledger, local, engine, say
        self._found: dict[tuple[str, Goal], Calibration] = {}
        self._found_in_machines: dict[tuple[str, Goal], Calibration] = {}

    def calibrated(self, spec: DriverSpec, encryption: Encryption) -> Calibration:
        """Return the limit of a device for a tunnel that encrypts so.

        ``LabError`` if it cannot be had here, with the remedy.
        """
        device = DEVICES[spec.kind]
        goal = goal_of(device, device_params(spec).calibrate, encryption)
        if (device.kind, goal) not in self._found:
            self._found[device.kind, goal] = self._calibrate(device, goal)
        return self._found[device.kind, goal]

    def limits(self, spec: DriverSpec, encryption: Encryption) -> dict[str, GroupLimit]:
        """Make the limits of a block's endpoints, by role; nothing for a host without one."""
        made: dict[str, GroupLimit] = {}
        roles = roles_of(spec)
        own = sorted(os.sched_getaffinity(0))
        cores = cores_for(roles, DEVICES[spec.kind].cores, own)
        beside = beside_devices(cores, own)
        for role in roles:
            found = self.calibrated(spec, encryption)
            try:
                made[role] = GroupLimit(
                    self._ledger,
                    find_controller(),
                    role,
                    found,
                    self._engine,
                    cores[role],
                    beside[role],
                )
            except BaseException:
                for limit in made.values():
                    limit.remove()
                raise
        return made

    def machine_limits(
        self, spec: DriverSpec, encryption: Encryption, hosts: Mapping[str, VmHost]
    ) -> dict[str, MachineLimit]:
        """Limit the machines of a block's endpoints, by role; calibrated at the first of them.

        By OpenSSL, the one library of which a machine has a benchmark.
        """
        made: dict[str, MachineLimit] = {}
        roles = roles_of(spec)
        if not roles:
            return made
        device = DEVICES[spec.kind]
        goal = goal_of(device, device_params(spec).calibrate, Encryption(encryption.cipher))

        def calibrated(bench: Bench, limit: Callable[[Quota | None], None]) -> Calibration:
            key = (device.kind, goal)
            if key not in self._found_in_machines:
                self._found_in_machines[key] = calibrate(device, goal, bench, limit)
            return self._found_in_machines[key]

        for role in roles:
            machine = hosts[role].machine
            try:
                made[role] = MachineLimit(
                    self._ledger, find_controller(), role, device, machine, calibrated, hosts[role]
                )
            except BaseException:
                for limit in made.values():
                    limit.remove()
                raise
        return made

    def describe(self) -> dict[str, str]:
        """Return what the environment of a result says of each device that was calibrated."""
        return {
            f"device {kind} by {goal.describe()}": found.describe()
            for (kind, goal), found in self._found.items()
        }

    def _calibrate(self, device: Device, goal: Goal) -> Calibration:
        for need in (_NEED, need_of(goal)):
            if (missing := need.missing(self._local)) is not None:
                raise LabError(f"device {device.kind}: {missing}")
        controller = find_controller()
        self._say(f"calibrating {device.kind} on {goal.describe()}")
        group = controller.group(f"{self._ledger.run_id}-calibrate")
        cpus = sorted(os.sched_getaffinity(0))[-1:]
        _announce(self._ledger, group)
        made = False

        def limit(quota: Quota | None) -> None:
            nonlocal made
            if made:
                group.remove()
            # A new one: what the last one was over its quota is not taken from this one.
            group.make()
            made = True
            if quota is not None:
                group.limit(quota)

        def bench(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> Completed:
            words = _entering(group, cpus, argv)
            return self._local.run(words, env=env, timeout_s=limit_s, check=False)

        try:
            return calibrate(device, goal, bench, limit)
        finally:
            group.remove()


def _throttled(groups: Iterable[CpuGroup]) -> dict[str, Throttled]:
    return {str(group.path): group.throttled() for group in groups}


def _announce(ledger: Ledger, group: CpuGroup) -> None:
    """Enter a group before it is made, and switch on what it needs."""
    ledger.enter("cgroup", str(group.path))
    if group.switch is not None:
        ledger.switch_on("cpu_controller", str(group.switch))


def _entering(group: CpuGroup, cpus: Sequence[int], argv: Sequence[str]) -> list[str]:
    words = ["sh", "-c", _ENTER, "limited", str(group.procs_file)]
    return [*words, "taskset", "-c", ",".join(map(str, cpus)), *argv]
