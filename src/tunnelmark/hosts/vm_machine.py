"""One running machine: its QEMU, its agent, its files; hosts are places inside it (vm.py)."""

import contextlib
import itertools
import os
import re
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunnelmark.hosts import vm_qemu
from tunnelmark.hosts.agent import Agent
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_channel import Channel, Ready, SilentError
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.hosts.vm_qemu import Boot, MachineSpec
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.host import Host, Process
from tunnelmark.vmimage import programs
from tunnelmark.vmimage.cache import Image

BOOT_LIMIT_S: Final = 60.0
"""Boots take 3 s here; a machine whose CPUs are shared by many may take much longer."""
_NICE: Final = -10
_BEFORE_OTHERS, _DEVICES_FIRST = 1, 2
"""Real-time priorities, below those of the engine's senders, reflectors and links."""
_EMULATED_PATIENCE: Final = 4.0
"""``ip`` once took more than 10 s."""
_SOCKET_PATH_MAX: Final = 107
_CONSOLE_TAIL: Final = 16384
_REASON: Final = re.compile(r"Kernel panic|tunnelmark-init:|tunnelmark-agent:|Out of memory")


class Machine(Agent):
    """A machine that has booted: see ``Booting``. ``close`` ends it; it ends with us anyhow."""

    def __init__(
        self, qemu: Process, channel: Channel, console: Path, facts: "MachineFacts"
    ) -> None:
        """Take the parts; use ``Booting``."""
        super().__init__(channel, f"machine {facts.name}")
        self._qemu = qemu
        self._console = console
        self.facts = facts

    @property
    def kernel(self) -> str:
        """Release of its kernel."""
        return self.facts.kernel

    @property
    def patience(self) -> float:
        """An emulated CPU is slow, and waits for a busy computer."""
        return _EMULATED_PATIENCE if self.facts.emulated else 1.0

    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._qemu.poll() is None

    @property
    def process(self) -> Process:
        """QEMU itself: whoever limits its CPU limits the machine's."""
        return self._qemu

    def go_first(self) -> bool:
        """Let the machine's CPUs run before all ordinary work on this computer, if we may.

        Not for a machine whose CPU is limited: a quota holds for ordinary work only. Its CPUs take
        turns with each other; what emulates its devices goes before them, and answers us.
        """
        pid = self._qemu.pid
        try:
            for thread in (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()):
                priority = os.sched_param(_DEVICES_FIRST if thread == pid else _BEFORE_OTHERS)
                # A thread of the pool that reads files may just have ended.
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_RR, priority)
        except OSError:
            return False
        return True

    def last_words(self) -> str:
        """Return the last lines the kernel wrote."""
        return _LastWords(self._qemu, self._console).tail(5)

    def close(self, grace_s: float = 3.0) -> None:
        """Switch off: ask the agent, close its port, then TERM and KILL to QEMU. Idempotent."""
        try:
            self._channel.ask("power_off", {}, timeout_s=grace_s)
            self._qemu.wait(grace_s)
        except (LabError, TimeoutError):
            pass  # it hangs or is gone: what follows needs no answer
        self._channel.close()
        self._qemu.stop(grace_s)


class Booting:
    """A machine that was started and is on its way; several can be at a time."""

    def __init__(
        self,
        base: Host,
        *,
        name: str,
        image: Image,
        payload: Payload,
        choice: Choice,
        spec: MachineSpec = MachineSpec(),  # noqa: B008  # frozen
        limit_s: float = BOOT_LIMIT_S,
    ) -> None:
        """Start QEMU on ``base``, whose machine dies with the thread that calls this.

        ``base`` is on this computer (its work directory is ours); TAP devices of ``spec`` must
        exist where it runs programs. Raises ``LabError`` with QEMU's words if it does not start.
        """
        self._base, self._payload = base, payload
        self._name, self._image, self._choice, self._spec = name, image, choice, spec
        self._limit_s = limit_s
        self._start()

    def _start(self) -> None:
        work = _new_directory(Path(self._base.work_dir), f"machine-{self._name}")
        self._console, self._initrd = work / "console", work / "initrd"
        path = work / "agent"
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
            raise LabError(f"{path}: a path of over {_SOCKET_PATH_MAX} bytes cannot be a socket")
        image = self._image
        self._initrd.write_bytes(image.initramfs.read_bytes() + self._payload.archive())
        argv = vm_qemu.command(
            self._spec,
            Boot(image.vmlinux, self._initrd, image.system),
            self._choice.accelerator,
            console=self._console,
            agent_socket=path,
        )
        argv[0] = programs.need(argv[0])
        if os.geteuid() == 0:
            # Before other work on this computer: with ten busy processes on two cores, 1 % of the
            # gaps inside end 0.5 to 4 ms late instead of 2 to 6. Where not allowed, it says so.
            argv = ["nice", "-n", str(_NICE), *argv]
        self._started = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen(1)
            self._qemu = self._base.spawn(argv, name=f"machine-{self._name}")
            try:
                connection = _accept(listener, self._qemu, self._limit_s)
            except BaseException:
                self._qemu.stop()
                raise
        path.unlink()
        self._last_words = _LastWords(self._qemu, self._console)
        self._channel = Channel(connection, name=f"machine {self._name}", lost=self._last_words)

    def machine(self) -> Machine:
        """Wait for the agent.

        Raises ``LabError`` with the end of the console if the machine does not boot; it is
        ended then.
        """
        try:
            ready = self._ready()
        except BaseException as error:
            self.cancel()
            tail = self._last_words.tail()
            if isinstance(error, LabError) and tail and tail not in str(error):
                raise type(error)(f"{error}; its console ends with: {tail}") from error
            raise
        self._initrd.unlink()  # the kernel has unpacked it
        facts = MachineFacts(
            name=self._name,
            image=self._image,
            choice=self._choice,
            spec=self._spec,
            kernel=ready.kernel,
            boot_s=time.monotonic() - self._started,
            qemu_pid=self._qemu.pid,
        )
        return Machine(self._qemu, self._channel, self._console, facts)

    def _ready(self) -> Ready:
        """Start once more if nothing is heard: of some 500 emulated boots, one hung early on."""
        try:
            return self._channel.ready(self._limit_s / 2)
        except SilentError:
            self.cancel()
            self._start()
            return self._channel.ready(self._limit_s)

    def cancel(self) -> None:
        """End it before it has booted."""
        self._channel.close()
        self._qemu.stop()


@dataclass(frozen=True)
class MachineFacts:
    """What a report says of a machine."""

    name: str
    image: Image
    choice: Choice
    spec: MachineSpec
    kernel: str
    boot_s: float
    """From the start of QEMU to the agent's first sign."""
    qemu_pid: int

    @property
    def emulated(self) -> bool:
        """Whether its CPU is software: its figures never stand beside native ones unmarked."""
        return self.choice.accelerator == "tcg"

    def describe(self) -> str:
        """Return one phrase for the report."""
        cpu = "emulated CPU" if self.emulated else "virtualized CPU"
        return f"machine with Linux {self.kernel}, {self.spec.cpus} cores, {cpu}"


class _LastWords:
    """Why a machine is gone, by its QEMU and its console."""

    def __init__(self, qemu: Process, console: Path) -> None:
        self._qemu = qemu
        self._console = console

    def __call__(self) -> str:
        try:
            status = self._qemu.wait(2.0)
        except TimeoutError:
            return f"the connection was lost; its console ends with: {self.tail()}"
        words = self.tail() or self._qemu.log_tail(1)
        return f"the virtual machine ended (QEMU exit status {status}); its last messages: {words}"

    def tail(self, lines: int = 3) -> str:
        try:
            with self._console.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_TAIL))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        rows = [row.strip() for row in text.splitlines() if row.strip()]
        # After a panic the kernel prints registers for long: its reason stands further up.
        reasons = [row for row in rows if _REASON.search(row)]
        return reasons[-1] if reasons else " / ".join(rows[-lines:])


def _new_directory(parent: Path, name: str) -> Path:
    """Make a directory of a name that is still free: machines of one name come and go."""
    for number in itertools.count(1):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return directory
    raise AssertionError


def _accept(listener: socket.socket, qemu: Process, limit_s: float) -> socket.socket:
    """Wait for QEMU to connect; its end is noticed at once."""
    listener.settimeout(0.2)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            status = qemu.poll()
            if status is not None:
                words = qemu.log_tail(1) or f"exit status {status}"
                # Killed, or it ended by itself, for what it will again.
                kind = LabFailedError if status < 0 else LabError
                raise kind(f"{vm_qemu.QEMU} does not start: {words}") from None
            continue
        connection.settimeout(None)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", raw)[1]
        if uid != os.getuid():
            connection.close()
            continue
        return connection
    raise LabFailedError(f"{vm_qemu.QEMU}: did not connect within {limit_s:g} s")
