"""Hosts in virtual time: what a workload starts on them is a part of one simulation.

The seam is the one that the lab has: a workload starts a reflector on one host and a sender on the
other, reads their events, and fetches their records. Here both wait until all senders that belong
together have been started; then the simulator runs once, and each says what it came to.
"""

import json
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed
from tunnelmark.model.tunnel import Side
from tunnelmark.sim.simulate import Simulated

Part = Literal["send", "reflect"]
Parts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By way and part what the engine was given: ``parts["forward"]["send"]``."""
Simulate = Callable[[Parts], Simulated]

_PARTS: Final[tuple[Part, ...]] = ("send", "reflect")
_SENDS: Final = {"client": "forward", "server": "reverse"}
_REFLECTS: Final = {"server": "forward", "client": "reverse"}
"""Host to the way whose packets it sends, or answers."""
_NO_PROGRAMS: Final = "a simulation has no programs"


class Round:
    """Senders and reflectors that belong together, and what came of them."""

    def __init__(self, senders: int, simulate: Simulate) -> None:
        """Wait for so many senders."""
        self.parts: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.over = False
        self.found: Simulated | None = None
        self.error: str = ""
        """Why there is nothing."""
        self._senders, self._simulate = senders, simulate
        self._running = False
        self._changed = threading.Condition()

    def join(self, way: str, part: Part, document: Mapping[str, Any]) -> None:
        """Add a part; the last sender runs the simulation."""
        with self._changed:
            self.parts.setdefault(way, {})[part] = document
            if part != "send" or sum("send" in one for one in self.parts.values()) < self._senders:
                return
            self._running = True
        try:
            self.found = self._simulate(self.parts)
        except LabError as error:
            self.error = str(error)
        finally:
            with self._changed:
                self._running, self.over = False, True
                self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until it is over; ``TimeoutError`` if it does not even begin in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.over or self._running, timeout_s):
                raise TimeoutError("the simulation waits for a sender that was not started")
            self._changed.wait_for(lambda: self.over)


class Line:
    """What joins the two hosts: it makes the rounds."""

    def __init__(self, simulate: Simulate) -> None:
        """Begin with a round of one sender."""
        self._simulate = simulate
        self._lock = threading.Lock()
        self._round = Round(1, simulate)
        self.enough: Mapping[str, int] | None = None
        """What ends senders before their time, as the simulator reads it."""

    def end_when_lost(self, packets: int, after_ns: int) -> None:
        """Let what follows end once so many packets were lost, and no earlier than that."""
        self.enough = {"lost": packets, "after_ns": after_ns}

    def expect(self, senders: int) -> None:
        """Say how many senders are about to be started at the same time."""
        with self._lock:
            self._round = Round(senders, self._simulate)

    def round(self) -> Round:
        """Return the round that whatever starts now belongs to."""
        with self._lock:
            if self._round.over:
                self._round = Round(1, self._simulate)
            return self._round


class SimProcess:
    """A sender or a reflector."""

    def __init__(self, argv: Sequence[str], name: str, number: int, part: Part, way: str) -> None:
        """Have said nothing yet but, as a reflector, that it is ready."""
        self.argv, self.name = tuple(argv), name
        self.pid = self.host_pid = number
        self.part, self.way = part, way
        self.round: Round | None = None
        self._lines: deque[str] = deque(['{"event": "ready"}'] if part == "reflect" else [])
        self._reported = self._ended = False

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs: a reflector does until it is stopped."""
        if not self._ended:
            return None
        return 0 if self.round is not None and self.round.found is not None else 1

    def wait(self, timeout_s: float) -> int:  # noqa: ARG002 - it has ended, or will
        """End, and return the exit status."""
        return self.stop()

    def stop(self, grace_s: float = 2.0) -> int:  # noqa: ARG002 - it ends at once
        """End, and return the exit status."""
        self._ended = True
        return self.poll() or 0

    def kill(self) -> None:
        """End."""
        self._ended = True

    def read_line(self, timeout_s: float) -> str | None:
        """Return the next event, None when all has been said."""
        if self._lines:
            return self._lines.popleft()
        if self._reported or self.round is None:
            return None
        if self.part == "send" and not self._ended:
            self.round.wait(timeout_s)
        self._reported = self._ended = True
        if self.round.found is None:
            words = self.round.error or "the trial was ended early"
            return json.dumps({"event": "error", "message": words})
        return json.dumps(self.round.found.ways[self.way][self.part])

    def log_tail(self, lines: int = 5) -> str:  # noqa: ARG002 - as the lab's
        """Return nothing: there is no log."""
        return ""


class SimHost:
    """A host that has nothing but a folder and the engine's senders and reflectors."""

    def __init__(self, name: Side, line: Line, folder: Path) -> None:
        """Keep files in ``folder``, which is there."""
        self.name = name
        self.unique = f"tm-sim-{name}"
        self.work_dir = PurePosixPath(folder)
        self._line, self._folder = line, folder
        self._started = 0

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,  # noqa: ARG002 - as the lab's
        stdin: bytes | None = None,  # noqa: ARG002 - likewise
        env: Mapping[str, str] | None = None,  # noqa: ARG002 - likewise
        check: bool = True,  # noqa: ARG002 - likewise
    ) -> Completed:
        """Remove a file; ``LabError`` for any other program."""
        match argv:
            case ["rm", "-f", path]:
                self._file(PurePosixPath(path)).unlink(missing_ok=True)
                return Completed(tuple(argv), 0, b"", b"")
        raise LabError(f"{_NO_PROGRAMS}: {argv[0]} was asked for")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,  # noqa: ARG002 - as the lab's
        private_dirs: Sequence[str] = (),  # noqa: ARG002 - likewise
        lines: bool = False,  # noqa: ARG002 - likewise
    ) -> SimProcess:
        """Start a sender or a reflector; ``LabError`` for any other program."""
        part = next((part for part in _PARTS if argv[1:] == [part, "-"]), None)
        if part is None or stdin is None:
            raise LabError(f"{_NO_PROGRAMS}: {argv[0]} was asked for")
        way = (_SENDS if part == "send" else _REFLECTS)[self.name]
        self._started += 1
        process = SimProcess(argv, name, self._started, part, way)
        process.round = self._line.round()
        process.round.join(way, part, json.loads(stdin))
        return process

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file of the host's folder."""
        file = self._file(path)
        file.write_bytes(data)
        file.chmod(mode)

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file of the host's folder."""
        return bytes(self.mapped(path, limit_bytes=limit_bytes))

    def mapped(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> memoryview:
        """See a file of the host's folder, as long as it is looked at."""
        try:
            with self._file(path).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > limit_bytes:
                    raise LabError(f"{path}: has more than {limit_bytes} bytes")
                if not size:
                    return memoryview(b"")
                # All pages at once where the system can: one by one they take as long as to read.
                flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
                return memoryview(mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ))
        except OSError as error:
            raise LabError(f"{path}: cannot be read: {error}") from error

    def has(self, program: str) -> str | None:  # noqa: ARG002 - none at all
        """Return that there is no such program."""
        return None

    def has_kernel(self, feature: str) -> bool:  # noqa: ARG002 - none at all
        """Say that there is no kernel."""
        return False

    def _file(self, path: PurePosixPath) -> Path:
        if path.parent != self.work_dir:
            raise LabError(f"{path}: a simulated host has only files right in {self.work_dir}")
        return self._folder / path.name
