"""What this machine can do for a lab, what is missing and how to install it."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.cgroup import find_controller
from tunnelmark.hosts.features import has_kernel
from tunnelmark.hosts.vm_qemu import QEMU
from tunnelmark.lab.awake import Awake
from tunnelmark.lab.rootless import cannot_run_rootless, inside_user_namespace
from tunnelmark.model.errors import LabError
from tunnelmark.model.suites import MachineSystem
from tunnelmark.vmimage import build, programs


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    message: str
    fix: str = ""
    """Command that installs what is missing, or another remedy."""


def examine(system: MachineSystem = MachineSystem()) -> list[Finding]:  # noqa: B008  # frozen
    """Look at everything, machines of a ``system`` included; nothing is changed."""
    return [
        Finding("kernel", ok=True, message=f"Linux {platform.release()}, {os.cpu_count()} cores"),
        _privileges(),
        _engine(),
        _feature("veth", "the link between hosts"),
        _feature("tun", "userspace tunnels"),
        _limits(),
        _machine(system),
        _clock(),
        _realtime(),
        _idle_cores(),
    ]


def _privileges() -> Finding:
    if inside_user_namespace():
        return Finding("privileges", ok=True, message="not root; user namespaces are used instead")
    if os.geteuid() == 0:
        return Finding("privileges", ok=True, message="root")
    message = f"not root, {cannot_run_rootless() or 'no user namespace either'}"
    return Finding("privileges", ok=False, message=message, fix="run with sudo")


def _engine() -> Finding:
    try:
        return Finding("engine", ok=True, message=find_engine())
    except LabError as error:
        return Finding("engine", ok=False, message=str(error), fix="make setup")


def _feature(name: str, why: str) -> Finding:
    ok = has_kernel(name)
    message = f"{why}: {'there' if ok else f'the kernel has no {name}'}"
    return Finding(name, ok=ok, message=message, fix="" if ok else f"modprobe {name}")


def _limits() -> Finding:
    try:
        found = find_controller()
    except LabError as error:
        return Finding("cpu limits", ok=False, message=str(error))
    message = f"devices: control groups of version {found.version} below {found.root}"
    return Finding("cpu limits", ok=True, message=message)


def _machine(system: MachineSystem) -> Finding:
    if programs.find(QEMU) is None:
        message = f"machines with another kernel: {QEMU} is not installed"
        fix = f"apt-get install {programs.PACKAGES[QEMU]}"
        return Finding("machine", ok=False, message=message, fix=fix)
    image = build.ready(system)
    if image is None:
        of = f" of {system.describe()}" if system.is_named else ""
        message = f"machines with another kernel: there is no image{of} yet"
        fix = f"tunnelmark vm build{system.options()}"
        return Finding("machine", ok=False, message=message, fix=fix)
    own = " (your own)" if system.kernel is not None else ""
    message = f"machines of {system.name} with Linux {image.kernel_release}{own}"
    return Finding("machine", ok=True, message=message)


def _clock() -> Finding:
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = path.read_text(encoding="ascii").strip() if path.exists() else "unknown"
    slow = source in {"hpet", "acpi_pm"}
    message = f"clock source {source}" + (": reading it takes microseconds" if slow else "")
    return Finding("clock", ok=not slow, message=message)


def _realtime() -> Finding:
    done = subprocess.run(["chrt", "--fifo", "1", "true"], capture_output=True, check=False)
    if done.returncode == 0:
        return Finding("real time", ok=True, message="SCHED_FIFO is allowed")
    message = "SCHED_FIFO is not allowed: packets may leave late on a busy computer"
    return Finding("real time", ok=False, message=message, fix="run as root")


def _idle_cores() -> Finding:
    problem = Awake().problem()
    if problem is None:
        return Finding("idle cores", ok=True, message="wait awake while a run measures")
    message = f"{problem}: cores that sleep wake up late on a computer shared with other guests"
    return Finding("idle cores", ok=False, message=message)
