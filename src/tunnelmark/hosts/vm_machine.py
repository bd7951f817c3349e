"""One running machine: its QEMU, its agent, its files; hosts are places inside it (vm.py)."""

import contextlib
import itertools
import json
import os
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from tunnelmark.hosts import vm_qemu
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.hosts.vm_channel import PAYLOAD_MAX, Channel, Listener, Ready, SilentError
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
_ASK_S: Final = 30.0
_PART: Final = 512 * 1024
_SOCKET_PATH_MAX: Final = 107
_CONSOLE_TAIL: Final = 16384
_REASON: Final = re.compile(r"Kernel panic|tunnelmark-init:|tunnelmark-agent:|Out of memory")


class Machine:
    """A machine that has booted. ``boot`` makes one, ``close`` ends it; it ends with us anyhow."""

    def __init__(
        self, qemu: Process, channel: Channel, console: Path, facts: "MachineFacts"
    ) -> None:
        """Take the parts; use ``boot``."""
        self._qemu = qemu
        self._channel = channel
        self._console = console
        self.facts = facts

    @classmethod
    def boot(
        cls,
        base: Host,
        *,
        name: str,
        image: Image,
        payload: Payload,
        choice: Choice,
        spec: MachineSpec = MachineSpec(),  # noqa: B008  # frozen
        limit_s: float = BOOT_LIMIT_S,
    ) -> "Machine":
        """Start a machine on ``base`` and return when its agent answers; see ``Booting``."""
        booting = Booting(
            base, name=name, image=image, payload=payload, choice=choice, spec=spec, limit_s=limit_s
        )
        return booting.machine()

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: bool,
        within: int | None = None,
    ) -> tuple[int, int]:
        """Start a program and return its number for the agent and its process id.

        It sees the network and the mounts of the process ``within``, if one is given.
        """
        request: dict[str, object] = {"argv": list(argv), "env": dict(env), "stdin": stdin}
        if within is not None:
            request["within"] = within
        answer = _object(self._ask("spawn", request)[0])
        return _integer(answer["proc"]), _integer(answer["pid"])

    def listen(self, process: int, listener: Listener) -> None:
        """Tell the listener of a program's output and end, from the start on."""
        self._channel.listen(process, listener)

    def feed(self, process: int, data: bytes) -> None:
        """Give a program its whole standard input and close it."""
        for start in range(0, max(len(data), 1), _PART):
            part = data[start : start + _PART]
            eof = start + _PART >= len(data)
            self._ask("stdin", {"proc": process, "eof": eof}, part)

    def signal(self, process: int, number: int, *, group: bool = True) -> None:
        """Send a signal to a program (and what it started); one that has ended is no error."""
        self._ask("signal", {"proc": process, "signal": number, "group": group})

    def put(self, path: PurePosixPath, data: bytes, mode: int) -> None:
        """Write a file that appears whole."""
        for start in range(0, max(len(data), 1), PAYLOAD_MAX):
            part = data[start : start + PAYLOAD_MAX]
            last = start + PAYLOAD_MAX >= len(data)
            request = {"path": str(path), "mode": mode, "offset": start, "last": last}
            self._ask("put", request, part)

    def get(self, path: PurePosixPath, limit_bytes: int) -> bytes:
        """Read a file of at most ``limit_bytes``."""
        data = bytearray()
        while True:
            request = {"path": str(path), "offset": len(data), "limit": PAYLOAD_MAX}
            answer, part = self._ask("get", request)
            data += part
            if len(data) > limit_bytes:
                raise LabError(f"{path}: is larger than {limit_bytes} bytes")
            if _object(answer)["end"] is True:
                return bytes(data)

    def read_files(self, paths: Sequence[PurePosixPath]) -> list[bytes | None]:
        """Read many small files (of /proc) at one moment; None for each that is not there."""
        answer, data = self._ask("read_many", {"paths": [str(path) for path in paths]})
        if not isinstance(answer, list) or len(answer) != len(paths):
            raise LabError(f"machine {self.facts.name}: read_many: not one size per file")
        contents: list[bytes | None] = []
        start = 0
        for size in answer:
            contents.append(None if size is None else data[start : start + _integer(size)])
            start += 0 if size is None else _integer(size)
        return contents

    def cpu(self) -> "CpuSnapshot":
        """Return what every process and core inside has used, read at one moment."""
        raw = json.loads(self._ask("cpu", {})[1])
        processes = {
            _integer(pid): ProcessCpu(
                _integer(parent),
                _integer(user),
                _integer(system),
                _integer(waited),
                tuple((_integer(tid), _integer(run_ns)) for tid, run_ns in threads),
            )
            for pid, parent, user, system, waited, threads in _object(raw)["processes"]
        }
        return CpuSnapshot(str(raw["stat"]), _integer(raw["time_ns"]), processes)

    def which(self, program: str) -> str | None:
        """Return the path of a program, or None."""
        answer, _ = self._ask("which", {"program": program})
        return answer if isinstance(answer, str) else None

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

    def console_tail(self, lines: int = 5) -> str:
        """Return the last lines the kernel wrote."""
        return _LastWords(self._qemu, self._console).tail(lines)

    def close(self, grace_s: float = 3.0) -> None:
        """Switch off: ask the agent, close its port, then TERM and KILL to QEMU. Idempotent."""
        try:
            self._channel.ask("power_off", {}, timeout_s=grace_s)
            self._qemu.wait(grace_s)
        except (LabError, TimeoutError):
            pass  # it hangs or is gone: what follows needs no answer
        self._channel.close()
        self._qemu.stop(grace_s)

    def _ask(
        self, op: str, arguments: Mapping[str, object], payload: bytes = b""
    ) -> tuple[object, bytes]:
        return self._channel.ask(op, arguments, payload, timeout_s=_ASK_S)


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

        Raises ``LabError`` with the last words of the console if the machine does not boot; it is
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


@dataclass(frozen=True)
class ProcessCpu:
    """What one process has used since its start."""

    parent: int
    user_ticks: int
    system_ticks: int
    waited_ticks: int
    """Of children that ended and were waited for."""
    threads: tuple[tuple[int, int], ...]
    """Those that live: id, and what it ran in ns."""


@dataclass(frozen=True)
class CpuSnapshot:
    """What all of a machine has used since it booted, seen from inside."""

    stat: str
    """Text of the guest's ``/proc/stat``."""
    time_ns: int
    """The guest's monotonic clock when that was read."""
    processes: Mapping[int, ProcessCpu]
    """By process id; threads of the kernel are left out."""


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
        return f"the machine ended (QEMU exit status {status}); its last words: {words}"

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
    raise LabFailedError(f"{vm_qemu.QEMU}: does not connect within {limit_s:g} s")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else MappingProxyType({})


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise LabError(f"agent: {value!r} is no whole number")
    return value
