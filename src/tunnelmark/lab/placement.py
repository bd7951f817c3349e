"""Which place a tunnel is measured in: the cheapest that can run it."""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, Self

from tunnelmark.devices.registry import is_limited
from tunnelmark.hosts import modules, vm_accel, vm_payload
from tunnelmark.hosts.cgroup import find_controller
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.hosts.vm import VmHost
from tunnelmark.hosts.vm_machine import Booting, Machine
from tunnelmark.hosts.vm_qemu import MachineSpec
from tunnelmark.lab.awake import Awake
from tunnelmark.lab.devices import Devices, machine_specs
from tunnelmark.lab.endpoints import NO_GATEWAY, EndpointMachinesPlace
from tunnelmark.lab.place import LocalPlace, MachinePlace, Place
from tunnelmark.model.errors import LabError, LabFailedError, StudyError
from tunnelmark.model.host import Host
from tunnelmark.model.suites import MachineSystem
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption
from tunnelmark.vmimage import build, programs
from tunnelmark.vmimage.cache import Image

Wanted = Literal["auto", "local", "machine", "endpoints"]
"""Namespaces here, in one machine, a machine per endpoint; auto: here, else in one machine."""

HOST: Final = DriverSpec("host", "host", {})
"""The device of endpoints that stand on this machine as it is."""
MOST_BOOTS: Final = 3
_SPEC: Final = MachineSpec(cpus=2, memory_mib=1536)


class Placement:
    """Decides for each tunnel of a run; the machine it may need is booted once, when it is needed.

    Use as a context manager: meanwhile idle cores wait awake, and leaving ends the machine.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        engine: str,
        wanted: Wanted = "auto",
        system: MachineSystem = MachineSystem(),  # noqa: B008  # frozen
        say: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """``engine`` is this computer's; ``say`` is called with what takes time.

        With a ``system`` that the study names, ``auto`` is in a machine for all tunnels. Raises
        ``StudyError`` if the lab is wanted here and in such a machine.
        """
        if wanted == "local" and system.is_named:
            raise StudyError(
                f"the suite {system.describe()} is of a virtual machine, and the lab is to stand "
                "here (leave out --place local)"
            )
        self._ledger = ledger
        self._engine = engine
        self._wanted = wanted
        self._system = system
        self._say = say
        self._local = LocalHost(ledger)
        self._devices = Devices(ledger, self._local, engine=engine, say=say)
        self._machine: Machine | None = None
        self._host: VmHost | None = None
        self._image: Image | None = None
        self._inside: set[str] = set()
        self._encryptions: dict[str, Encryption] = {}
        self._modules = modules.loaded()
        self._awake = Awake()

    def __enter__(self) -> Self:
        """Return the placement."""
        self._awake.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End the machine, and say what the kernel has loaded meanwhile."""
        self._awake.__exit__()
        self.close()
        if words := modules.reported(self._modules, modules.loaded()):
            self._say(words)

    def choose(self, label: str, unavailable: Callable[[Host], str | None]) -> str | None:
        """Decide where ``label`` runs; return why it can run nowhere, with the remedy, or None.

        ``unavailable`` is the driver's own answer for a host.
        """
        reason = None
        if not self._system.is_named:
            local = self.local_host()
            reason = local if isinstance(local, str) else unavailable(local)
            if self._wanted == "local" or (self._wanted == "auto" and reason is None):
                return reason
        if self._wanted == "endpoints" and (here := _no_namespaces()):
            return f"the link between machines: {here}"
        try:
            inside = unavailable(self.machine_host())
        except LabError as error:
            inside = str(error)
        if inside is None:
            self._inside.add(label)
            return None
        if self._system.is_named:
            return f"in a virtual machine of {self._system.describe()}: {inside}"
        if self._wanted == "auto":
            return f"{reason}; nor in a virtual machine: {inside}"
        return inside

    def gather(self, unavailable: Mapping[str, Callable[[Host], str | None]]) -> None:
        """Move what was chosen to run here into the machine, if anything runs there.

        What cannot run there stays here; with a place that was wanted nothing moves. To be called
        when all are chosen, by label the driver's own answer for a host.
        """
        if self._wanted != "auto" or not self._inside:
            return
        machine = self.machine_host()
        self._inside |= {
            label
            for label, ask in unavailable.items()
            if label not in self._inside and ask(machine) is None
        }

    def gateway_problem(self, label: str, devices: Iterable[DriverSpec]) -> str | None:
        """Return why a gateway with its clients cannot stand where ``label`` does, or None.

        ``devices`` are those that it is measured on: where it needs a machine, only a machine of
        its own has a limit.
        """
        alone = self._wanted == "endpoints" or any(map(is_limited, devices))
        return NO_GATEWAY if alone and label in self._inside else None

    def hosts(self, label: str) -> tuple[Host, ...]:
        """Return what ``label`` runs on, to look at what it has: both ends are of one kind."""
        return (self.machine_host() if label in self._inside else self._local,)

    def check_device(self, spec: DriverSpec, tunnels: Mapping[str, Encryption]) -> None:
        """Calibrate a limited device for the tunnels on it; ``LabError`` if it cannot be had."""
        self._encryptions |= tunnels
        here = [label for label in tunnels if label not in self._inside]
        if len(here) < len(tunnels):
            inside = next(label for label in tunnels if label in self._inside)
            if self._wanted == "machine":
                raise LabError(
                    f"device {spec.label}: only a machine of its own can be limited, and {inside} "
                    "shares one with the other endpoint (use --place endpoints)"
                )
            if reason := _no_namespaces():
                raise LabError(
                    f"device {spec.label}: {inside} needs virtual machines, and {reason}"
                )
            find_controller()
        for label in here:
            self._devices.calibrated(spec, tunnels[label])

    def place(self, label: str, logs: Path, device: DriverSpec = HOST) -> Place:
        """Return where the lab of ``label`` stands, its endpoints on ``device``."""
        encryption = self._encryptions.get(label, Encryption())
        if label not in self._inside and not self._system.is_named:
            return LocalPlace(
                self._ledger,
                engine=self._engine,
                logs=logs,
                limits=lambda: self._devices.limits(device, encryption),
            )
        if self._wanted == "endpoints" or is_limited(device):
            image = self._ready_image()
            return EndpointMachinesPlace(
                self._ledger,
                engine=self._engine,
                image=image,
                payload=vm_payload.installed(),
                choice=vm_accel.choose(image),
                specs=machine_specs(device),
                logs=logs,
                limits=lambda hosts: self._devices.machine_limits(device, encryption, hosts),
            )
        machine = self.machine_host().machine
        return MachinePlace(machine, self._ledger.run_id, logs=logs)

    def describe(self) -> dict[str, str]:
        """Return what the environment of a result says of cores, devices, a machine if used."""
        devices = {"idle cores": self._awake.describe(), **self._devices.describe()}
        if self._system.is_named:
            self._ready_image()
        elif not self._inside:
            return devices
        if self._image is None:
            return devices
        choice = vm_accel.choose(self._image)
        packages = " ".join(f"{name}={version}" for name, version in self._image.packages.items())
        # The default is what older results have, which do not say it.
        named = {"machine system": self._system.describe()} if self._system.is_named else {}
        return {
            **devices,
            **named,
            "machine image": f"{self._image.recipe_digest}, Linux {self._image.kernel_release}",
            "machine accelerator": f"{choice.accelerator}: {choice.reason}",
            "machine packages": packages,
        }

    def machine_host(self) -> VmHost:
        """Return the machine, booted if it is not; one that died is replaced.

        Raises ``LabError`` naming the one package to install, or the machine's last words.
        """
        if self._machine is None or not self._machine.alive():
            self.close()
            image = self._ready_image()
            choice = vm_accel.choose(image)
            self._say(f"booting a virtual machine with Linux {image.kernel_release}")
            self._machine = self._booted(image, choice)
            self._machine.go_first()
            self._host = VmHost(
                self._machine,
                name="machine",
                unique=f"{self._ledger.run_id}-machine",
                log_dir=Path(self._local.work_dir) / "machine-logs",
                suite=self._system.name,
            )
        assert self._host is not None  # noqa: S101  # made with the machine
        return self._host

    def local_host(self) -> LocalHost | str:
        """Return this computer if a lab can stand on it, or why not, with the remedy."""
        if reason := _no_namespaces():
            return reason
        if not self._local.has_kernel("veth"):
            return "the kernel has no veth, which connects the hosts of a lab (modprobe veth)"
        return self._local

    def _booted(self, image: Image, choice: vm_accel.Choice) -> Machine:
        """Boot the machine; one that is killed or late on the way is tried again."""
        for boots in itertools.count(1):
            try:
                payload = vm_payload.installed()
                return Booting(
                    self._local,
                    name="lab",
                    image=image,
                    payload=payload,
                    choice=choice,
                    spec=_SPEC,
                ).machine()
            except LabFailedError as error:
                if boots == MOST_BOOTS:
                    raise
                self._say(f"booting it again: {error}")
        raise AssertionError

    def ready_machine(self) -> VmHost | str:
        """Return the machine if one can be booted as things are, or why not; builds nothing."""
        try:
            programs.need("qemu-system-x86_64")
            if build.ready(self._system) is None:
                return build.missing(self._system)
            return self.machine_host()
        except LabError as error:
            return str(error)

    def close(self) -> None:
        """End the machine, if there is one; idempotent."""
        if self._machine is not None:
            self._machine.close()
        self._machine = self._host = None

    def _ready_image(self) -> Image:
        programs.need("qemu-system-x86_64")
        if self._image is None:
            self._image = build.ensure(clock=time.monotonic, say=self._say, system=self._system)
        return self._image


def _no_namespaces() -> str | None:
    if os.geteuid() == 0:
        return None
    return "namespaces need root or user namespaces (run it with sudo)"
