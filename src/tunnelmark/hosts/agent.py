"""What may be asked of an agent, wherever it runs: in a machine, or on a host over SSH."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from tunnelmark.hosts.vm_channel import PAYLOAD_MAX, Channel, Listener
from tunnelmark.model.errors import LabError

_ASK_S: Final = 30.0
_PART: Final = 512 * 1024


class Agent(ABC):
    """A place that an agent serves. Whoever made it closes it."""

    def __init__(self, channel: Channel, name: str) -> None:
        """``name`` stands in error messages."""
        self._channel = channel
        self._name = name

    @property
    @abstractmethod
    def kernel(self) -> str:
        """Release of the kernel there."""

    @property
    def patience(self) -> float:
        """How many times as long as here a program may take there."""
        return 1.0

    @abstractmethod
    def alive(self) -> bool:
        """Whether the agent can still be asked."""

    @abstractmethod
    def last_words(self) -> str:
        """Return why it cannot, for error messages."""

    @abstractmethod
    def close(self) -> None:
        """End the agent and all that it started; idempotent."""

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

    def forget(self, process: int) -> None:
        """Keep nothing more of what a program writes."""
        self._channel.forget(process)

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
            raise LabError(f"{self._name}: read_many: not one size per file")
        contents: list[bytes | None] = []
        start = 0
        for size in answer:
            contents.append(None if size is None else data[start : start + _integer(size)])
            start += 0 if size is None else _integer(size)
        return contents

    def cpu(self) -> "CpuSnapshot":
        """Return what every process and core inside has used, read at one moment."""
        raw = _object(json.loads(self._ask("cpu", {})[1]))
        living, ended = (_processes(raw[name]) for name in ("processes", "ended"))
        return CpuSnapshot(str(raw["stat"]), _integer(raw["time_ns"]), living, ended)

    def which(self, program: str) -> str | None:
        """Return the path of a program, or None."""
        answer, _ = self._ask("which", {"program": program})
        return answer if isinstance(answer, str) else None

    def _ask(
        self, op: str, arguments: Mapping[str, object], payload: bytes = b""
    ) -> tuple[object, bytes]:
        return self._channel.ask(op, arguments, payload, timeout_s=_ASK_S)


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
    stopped: bool = False
    """By a signal or a tracer."""


@dataclass(frozen=True)
class CpuSnapshot:
    """What all of a machine has used since it booted, seen from inside."""

    stat: str
    """Text of the guest's ``/proc/stat``."""
    time_ns: int
    """The guest's monotonic clock when that was read."""
    processes: Mapping[int, ProcessCpu]
    """By process id; threads of the kernel are left out."""
    ended: Mapping[int, ProcessCpu] = field(default_factory=dict)
    """Programs of ours that have ended, the last of them, as they were then."""


def _processes(rows: list[Any]) -> dict[int, ProcessCpu]:
    return {
        _integer(pid): ProcessCpu(
            _integer(parent),
            _integer(user),
            _integer(system),
            _integer(waited),
            tuple((_integer(tid), _integer(run_ns)) for tid, run_ns in threads),
            stopped is True,
        )
        for pid, parent, user, system, waited, threads, stopped in rows
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else MappingProxyType({})


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise LabError(f"agent: {value!r} is not a whole number")
    return value
