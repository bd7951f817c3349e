"""A host that an agent serves: programs and files by its channel, logs on this side."""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from tunnelmark.hosts.agent import Agent
from tunnelmark.hosts.undoing import do_all
from tunnelmark.hosts.vm_process import KILL, VmProcess
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.host import Completed

_OUTPUT_MAX: Final = 256 << 20
_HOLDER_LIMIT_S: Final = 40.0
_NO_ENV: Final[Mapping[str, str]] = MappingProxyType({})
_UNIQUE: Final = re.compile(r"tm[a-z0-9-]{1,60}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

_PRIVATE: Final = """\
set -e
while [ "$1" != -- ]; do
  mkdir -p "$1" "$2"
  case $1 in
    /run* | /var/run* | /var/lib*) ;;
    *) cp -a "$1/." "$2/" ;;
  esac
  mount --bind "$2" "$1"
  shift 2
done
shift
exec "$@"
"""
"""Arguments: directory and private copy, repeated, ``--``, program.

Configuration is copied, state is not: the daemon starts with its own, empty, as on ``LocalHost``.
"""


class AgentHost(ABC):
    """Implements ``Host`` but for the features of the kernel, which places know otherwise."""

    def __init__(
        self,
        agent: Agent,
        *,
        name: str,
        unique: str,
        log_dir: Path,
        root: PurePosixPath,
        pid_base: int = 0,
    ) -> None:
        """``log_dir`` is the run's log directory here, ``root`` where it works there.

        ``pid_base`` is added to process ids, so that those of several agents differ.
        """
        if not _UNIQUE.fullmatch(unique):
            raise LabError(f"host {name}: {unique!r} is not a name that starts with tm")
        if not _NAME.fullmatch(name):
            raise LabError(f"host {name!r}: is not a host name")
        self._agent = agent
        self._name = name
        self._unique = unique
        self._log_dir = log_dir
        self._pid_base = pid_base
        self._work_dir = root / unique
        self._processes: list[VmProcess] = []
        self._holder: VmProcess | None = None
        self._within: int | None = None
        self._call(["mkdir", "-p", "-m", "700", str(self._work_dir)], 10.0, None, _NO_ENV)

    @property
    def name(self) -> str:
        """The role in the lab."""
        return self._name

    @property
    def unique(self) -> str:
        """Short name, unique there, that starts with ``tm``."""
        return self._unique

    @property
    def work_dir(self) -> PurePosixPath:
        """Directory of this run there; gone with the agent."""
        return self._work_dir

    @property
    def spawned(self) -> tuple[VmProcess, ...]:
        """Processes started so far, oldest first."""
        return tuple(self._processes)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NO_ENV,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end; ``LabError`` with its last words as ``Host.run`` says."""
        done = self._call(argv, timeout_s, stdin, env)
        if check and done.returncode != 0:
            raise LabFailedError(f"{self._name}: {argv[0]}: {done.last_words()}")
        return done

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NO_ENV,
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> VmProcess:
        """Start a program that runs until it is stopped, or the agent ends."""
        if not _NAME.fullmatch(name):
            raise LabError(f"{self._name}: {name!r} is not a log name")
        inside = self._privately(argv, name, private_dirs)
        number, pid = self._agent.start(inside, env, stdin=stdin is not None, within=self._within)
        try:
            process = VmProcess(
                tuple(argv),
                name=name,
                pid=pid,
                pid_base=self._pid_base,
                log=self._log_dir / self._name / f"{name}.log",
                lines=lines,
                signal=lambda signal, group: self._agent.signal(number, signal, group=group),
            )
        except BaseException:
            self._kill(number)
            self._agent.forget(number)
            raise
        self._processes.append(process)
        self._agent.listen(number, process)
        if stdin is not None:
            self._agent.feed(number, stdin)
        return process

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file (parents are made)."""
        self._agent.put(path, data, mode)

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file of at most ``limit_bytes``."""
        return self._agent.get(path, limit_bytes)

    def has(self, program: str) -> str | None:
        """Return the path of a program there, or None."""
        return self._agent.which(program)

    @abstractmethod
    def has_kernel(self, feature: str) -> bool:
        """Say whether the kernel there has a feature."""

    def stop_all(self) -> None:
        """End every program that was started through this host, newest first; the agent stays."""
        if self._agent.alive():
            do_all(*(partial(process.stop, grace_s=1.0) for process in reversed(self._processes)))

    def remove(self) -> None:
        """Undo what making this host made there: its programs, what holds its namespace."""
        do_all(self.stop_all, self._let_go)

    def _hold(self, argv: Sequence[str]) -> int:
        """Start what holds this host's network and mounts, and bring up the loopback there.

        It says a line when they are there. Returns its process id. Raises ``LabError`` with its
        words if it ends, ``LabFailedError`` if it is late; whoever calls removes the host then.
        """
        self._holder = self.spawn(argv, name="holder", lines=True)
        self._processes.clear()  # it does not belong to the lab
        cannot = f"{self._name}: cannot make a network namespace"
        try:
            if self._holder.read_line(_HOLDER_LIMIT_S * self._agent.patience) is None:
                words = self._holder.log_tail(1) or "no reason was given"
                raise LabError(f"{cannot}: {words}")
        except TimeoutError as error:
            raise LabFailedError(f"{cannot}: {error}") from error
        self._within = self._holder.host_pid
        self.run(["ip", "link", "set", "lo", "up"])
        return self._within

    def _let_go(self) -> None:
        self._within = None
        if self._holder is not None and self._agent.alive():
            self._holder.stop()
            self._holder = None

    def _kill(self, number: int) -> None:
        """End a program that nobody else would; why matters more than whether it can be ended."""
        with suppress(LabError):
            self._agent.signal(number, KILL)

    def _privately(self, argv: Sequence[str], name: str, private_dirs: Sequence[str]) -> list[str]:
        if not private_dirs:
            return list(argv)
        pairs: list[str] = []
        for directory in private_dirs:
            if not directory.startswith("/") or ".." in PurePosixPath(directory).parts:
                raise LabError(f"{self._name}: {directory!r} is not an absolute path without ..")
            copy = self._work_dir / "private" / name / directory.strip("/").replace("/", "-")
            pairs += [directory, str(copy)]
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", _PRIVATE, "private", *pairs, "--", *argv]

    def _call(
        self, argv: Sequence[str], timeout_s: float, stdin: bytes | None, env: Mapping[str, str]
    ) -> Completed:
        timeout_s *= self._agent.patience
        number, _ = self._agent.start(argv, env, stdin=stdin is not None, within=self._within)
        collector = _Collector()
        self._agent.listen(number, collector)
        ended = False
        try:
            if stdin is not None:
                self._agent.feed(number, stdin)
            ended = collector.end.wait(timeout_s)
        finally:
            if not ended:
                self._kill(number)
            # Else the output of every program would stay in memory until the agent ends.
            self._agent.forget(number)
        if not ended:
            words = Completed(tuple(argv), -KILL, *collector.streams()).last_words()
            raise LabFailedError(
                f"{self._name}: {argv[0]}: not done after {timeout_s:g} s ({words})"
            )
        if collector.failure is not None:
            raise collector.failure
        if collector.too_much:
            raise LabError(f"{self._name}: {argv[0]}: wrote more than {_OUTPUT_MAX} bytes")
        if collector.returncode == -KILL and not self._agent.alive():
            words = self._agent.last_words()
            raise LabFailedError(
                f"{self._name}: {argv[0]}: the connection ended meanwhile: {words}"
            )
        return Completed(tuple(argv), collector.returncode, *collector.streams())


class _Collector:
    """Keeps what a program writes, within bounds, until it has ended."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.returncode = 0
        self.too_much = False
        self.failure: Exception | None = None
        self._streams = (bytearray(), bytearray())

    def output(self, stream: int, data: bytes) -> None:
        kept = self._streams[stream - 1]
        self.too_much |= len(kept) + len(data) > _OUTPUT_MAX
        if not self.too_much:
            kept += data

    def ended(self, returncode: int) -> None:
        if not self.end.is_set():
            self.returncode = returncode
            self.end.set()

    def failed(self, error: Exception) -> None:
        self.failure = error
        self.end.set()

    def streams(self) -> tuple[bytes, bytes]:
        out, err = self._streams
        return bytes(out), bytes(err)
