"""The command line of QEMU: pure functions from a description to arguments."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tunnelmark.model.errors import LabError

QEMU: Final = "qemu-system-x86_64"
AGENT_PORT: Final = "tunnelmark.agent"

Accelerator = Literal["kvm", "tcg"]

CPUS_MAX: Final = 64
MEMORY_MIB_MIN: Final = 256
MEMORY_MIB_MAX: Final = 65536

_KERNEL_LINE: Final = (
    # panic=-1 with -no-reboot: a kernel that dies ends QEMU.
    # tsc=reliable: no watchdog that finds the emulated clock slow.
    # no_timer_check: ten ticks in a busy wait would prove the timer, unless the computer is busy
    # elsewhere meanwhile, and the kernel then panics; guests of KVM leave it out by themselves.
    "console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable nokaslr nowatchdog no_timer_check "
    "random.trust_cpu=on"
)
_EMULATED: Final = ("mitigations=off", "norandmaps")
"""Of an emulated CPU; the guest is ours.

Mitigations cost much there. And what is translated of a program serves the next start of it only at
the same address: where each has another, half of a start is translation, and so is a good part of
the first seconds of whoever sends.
"""
_MITIGATIONS: Final = re.compile(r"(?<!\S)mitigations=[\w,]{1,40}(?!\S)")
_TCG_CPU: Final = "qemu64,+ssse3,+sse4.1,+sse4.2,+aes,+pclmulqdq"
"""``max`` is slower under emulation: WireGuard 40 against 136 Mbit/s."""
_PLAIN_CPU: Final = "qemu64"
_NO_OFFLOADS: Final = (
    # A frame on the wire is a frame: nothing is cut, joined or summed behind the guest's back.
    "csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,"
    "host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off"
)
_TAP: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_MAC_KIND: Final = 0b11
_MAC_LOCAL: Final = 0b10
"""IEEE 802: locally administered, one station."""
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


@dataclass(frozen=True)
class Nic:
    """A network card joined to a TAP device that exists where QEMU runs."""

    tap: str
    mac: str

    def __post_init__(self) -> None:
        """Refuse what would be read as another option."""
        if not _TAP.fullmatch(self.tap):
            raise LabError(f"network card: {self.tap!r} is not an interface name")
        if not _MAC.fullmatch(self.mac) or int(self.mac[1], 16) & _MAC_KIND != _MAC_LOCAL:
            raise LabError(f"network card: {self.mac!r} is not a locally administered address")


@dataclass(frozen=True)
class MachineSpec:
    """The hardware of a machine."""

    cpus: int = 2
    memory_mib: int = 1024
    nics: tuple[Nic, ...] = ()
    plain_cpu: bool = False
    """Without instructions for ciphers and wide vectors, as older and smaller CPUs are."""

    def __post_init__(self) -> None:
        """Refuse hardware out of bounds."""
        if not 1 <= self.cpus <= CPUS_MAX:
            raise LabError(f"machine: {self.cpus} cpus, the limits are 1 and {CPUS_MAX}")
        if not MEMORY_MIB_MIN <= self.memory_mib <= MEMORY_MIB_MAX:
            raise LabError(
                f"machine: memory of {self.memory_mib} MiB, the limits are {MEMORY_MIB_MIN} and "
                f"{MEMORY_MIB_MAX}"
            )


@dataclass(frozen=True)
class Boot:
    """The files a machine starts from."""

    vmlinux: Path
    initrd: Path
    system: Path | None
    """None: only the kernel and its first program are of interest."""


def command(
    spec: MachineSpec,
    boot: Boot,
    accelerator: Accelerator,
    *,
    console: Path,
    agent_socket: Path | None,
    kernel_options: Sequence[str] = (),
    own_line: Callable[[], str] = lambda: Path("/proc/cmdline").read_text(encoding="utf-8"),
) -> list[str]:
    """Return the command line; what the kernel says goes to the file ``console``.

    With KVM the guest has the mitigations that ``own_line``, this computer's kernel command line,
    asks for, so that its figures are those of a kernel on this CPU. QEMU connects to
    ``agent_socket``: whoever listens there holds the machine's life.
    """
    kvm = accelerator == "kvm"
    options = _MITIGATIONS.findall(own_line()) if kvm else _EMULATED
    argv = [
        QEMU,
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        # What QEMU never needs is forbidden to it, should a guest break out.
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"),
        *("-M", "q35,hpet=off", "-smp", str(spec.cpus), "-m", f"{spec.memory_mib}M"),
        *_acceleration(accelerator, plain=spec.plain_cpu),
        # Threads that run the guest's CPUs are named after them: a limit is set on each.
        *("-name", "tunnelmark,debug-threads=on"),
        *("-kernel", str(boot.vmlinux), "-initrd", str(boot.initrd)),
        *("-append", " ".join((_KERNEL_LINE, *options, *kernel_options))),
        # Not stdio: with a standard input at its end, QEMU stops to write.
        *("-chardev", f"file,id=console,path={_value(console)}", "-serial", "chardev:console"),
        *("-device", "virtio-rng-pci"),
    ]
    if boot.system is not None:
        drive = f"if=none,id=system,format=raw,readonly=on,file={_value(boot.system)}"
        argv += ["-drive", drive, "-device", "virtio-blk-pci,drive=system"]
    if agent_socket is not None:
        argv += [
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,path={_value(agent_socket)}"),
            *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
        ]
    for number, nic in enumerate(spec.nics):
        tap = f"tap,id=net{number},ifname={nic.tap},script=no,downscript=no"
        # No ROM: nothing boots from the network.
        card = f"virtio-net-pci,netdev=net{number},mac={nic.mac},romfile=,{_NO_OFFLOADS}"
        argv += ["-netdev", tap, "-device", card]
    return argv


def _acceleration(accelerator: Accelerator, *, plain: bool) -> list[str]:
    if accelerator == "kvm":
        return ["-accel", "kvm", "-cpu", _PLAIN_CPU if plain else "host"]
    return ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", _PLAIN_CPU if plain else _TCG_CPU]


def _value(path: Path) -> str:
    # In QEMU's option lists a comma ends a value unless it is doubled.
    return str(path).replace(",", ",,")
