"""Hosts on this machine: the machine itself, and network namespaces of it."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Protocol

from tunnelmark.hosts.families import BEGIN, beginning
from tunnelmark.hosts.features import has_kernel
from tunnelmark.hosts.ledger import Entry, Ledger, start_time, undo
from tunnelmark.hosts.process import LocalProcess
from tunnelmark.hosts.undoing import do_all
from tunnelmark.model.child import Child
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.faults import writing
from tunnelmark.model.host import Completed

_NOTHING: Mapping[str, str] = MappingProxyType({})
_MAKE_LIMIT_S = 10.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Arguments: number of directories, then (directory, private copy) of each, then the program.
# Only words given as arguments are used; nothing is put together into a command line.
_PRIVATELY = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do mkdir -p "$1" && mount --bind "$2" "$1" || exit 126; '
    'shift 2; n=$((n-1)); done; exec "$@"'
)


class CpuLimit(Protocol):
    """What holds the programs of a host back to those of a slower CPU."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs see of their CPU."""

    def applies(self, argv: Sequence[str]) -> bool:
        """Say whether a program is held back; one that measures is not."""

    def words(self, argv: Sequence[str]) -> list[str]:
        """Return the words that start a program under the limit."""

    def remove(self) -> None:
        """End what is left under it and remove it; tolerates being called twice."""


class LocalHost:
    """The machine itself; ``model.host.Host`` says what its methods do."""

    def __init__(self, ledger: Ledger, name: str = "machine", *, logs: Path | None = None) -> None:
        """Make the host's work directory in the ledger; ``logs`` is where process logs go."""
        self._ledger = ledger
        self._name = name
        self._work = ledger.work_dir / name
        self._work.mkdir(mode=0o700, exist_ok=True)
        self._logs = (logs or self._work / "logs") / name
        with writing(self._logs):
            self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._spawned: list[LocalProcess] = []
        self._limit: CpuLimit | None = None

    @property
    def name(self) -> str:
        """Role in the lab."""
        return self._name

    @property
    def unique(self) -> str:
        """Name that is unique on the machine."""
        return f"{self._ledger.run_id}-{self._name}"

    @property
    def work_dir(self) -> PurePosixPath:
        """Directory of this run on this host."""
        return PurePosixPath(self._work)

    @property
    def spawned(self) -> tuple[LocalProcess, ...]:
        """Processes started so far, oldest first."""
        return tuple(self._spawned)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NOTHING,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end."""
        try:
            done = _run(self._inside(argv), stdin or b"", _environment(env), timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LabFailedError(
                f"{self._name}: {argv[0]} did not end within {timeout_s:g} s"
            ) from error
        except OSError as error:
            raise LabError(f"{self._name}: cannot start {argv[0]}: {error.strerror}") from error
        completed = Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
        if check and done.returncode != 0:
            raise LabFailedError(f"{self._name}: {' '.join(argv)}: {completed.last_words()}")
        return completed

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NOTHING,
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> LocalProcess:
        """Start a program that runs until it is stopped, or until this process dies."""
        # The kernel kills it when the thread that starts it dies: nothing outlives a killed run.
        words = self._inside(
            ["setpriv", "--pdeathsig", "KILL", *self._privately(argv, name, private_dirs)]
        )
        if (limit := self._limit) is not None and limit.applies(argv):
            words, env = limit.words(words), {**limit.environment, **env}
        family = self._ledger.families.new()
        words = beginning(family, words, stdin=stdin is not None)
        log = self._logs / f"{name}.log"
        with writing(log), log.open("ab") as output:
            try:
                popen = Child(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if lines else output,
                    stderr=output,
                    env=_environment(env),
                    start_new_session=True,
                )
            except OSError as error:
                raise LabError(f"{self._name}: cannot start {argv[0]}: {error.strerror}") from error
        self._ledger.enter("process", str(popen.pid), start_time(popen.pid) or 0)
        assert popen.stdin is not None  # noqa: S101 - started with a pipe
        with contextlib.suppress(BrokenPipeError), popen.stdin as pipe:
            pipe.write(BEGIN + (stdin or b""))
        process = LocalProcess(popen, tuple(argv), name, log, lines=lines, family=family)
        self._spawned.append(process)
        return process

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file, in place of one that may be there."""
        target = Path(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(target, flags, mode)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
        except OSError as error:
            raise LabError(f"{self._name}: {path}: {error.strerror}") from error

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file."""
        try:
            with Path(path).open("rb") as file:
                # So much is set aside at once; what is made when it is read has no size.
                size = os.fstat(file.fileno()).st_size
                data = file.read((min(limit_bytes, size) if size else limit_bytes) + 1)
        except OSError as error:
            raise LabError(f"{self._name}: {path}: {error.strerror}") from error
        if len(data) > limit_bytes:
            raise LabError(f"{self._name}: {path} is longer than {limit_bytes} bytes")
        return data

    def has(self, program: str) -> str | None:
        """Return the path of a program, or None."""
        return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PATH}")

    def has_kernel(self, feature: str) -> bool:
        """Say whether the kernel has a feature."""
        return has_kernel(feature)

    def stop_all(self) -> None:
        """End every process that was started here, newest first."""
        do_all(*(partial(process.stop, grace_s=1.0) for process in reversed(self._spawned)))

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def _privately(self, argv: Sequence[str], name: str, directories: Sequence[str]) -> list[str]:
        if not directories:
            return list(argv)
        words = [str(len(directories))]
        for directory in directories:
            copy = self._work / "private" / name / directory.strip("/").replace("/", "-")
            if Path(directory).is_dir() and not directory.startswith(
                ("/run", "/var/run", "/var/lib")
            ):
                # Configuration is copied, state is not: the daemon starts with its own, empty.
                shutil.copytree(directory, copy, dirs_exist_ok=True, symlinks=True)
            copy.mkdir(mode=0o700, parents=True, exist_ok=True)
            words += [directory, str(copy)]
        return [
            *("unshare", "--mount", "--propagation", "private"),
            *("sh", "-c", _PRIVATELY, "privately", *words, *argv),
        ]


class NetnsHost(LocalHost):
    """A network namespace of this machine."""

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        *,
        logs: Path | None = None,
        limit: CpuLimit | None = None,
    ) -> None:
        """Make the namespace, named after the run, with its loopback up.

        Programs that are spawned run under ``limit``; it is removed with the namespace.
        """
        super().__init__(ledger, name, logs=logs)
        self._limit = limit
        self._namespace = f"{ledger.run_id}-{name}"
        ledger.enter("netns", self._namespace)
        try:
            self._make()
            self.run(["ip", "link", "set", "lo", "up"])
        except BaseException:
            with contextlib.suppress(Exception):
                self.remove()
            raise

    @property
    def namespace(self) -> str:
        """Name of the network namespace."""
        return self._namespace

    def remove(self) -> None:
        """Remove the namespace and everything in it; tolerates being called twice."""
        limit = () if self._limit is None else (self._limit.remove,)
        do_all(lambda: undo(self._ledger.run_id, [Entry("netns", self._namespace)]), *limit)

    def _make(self) -> None:
        words = ["ip", "netns", "add", self._namespace]
        cannot = f"{self._name}: cannot make a network namespace"
        try:
            made = _run(words, b"", _environment(_NOTHING), _MAKE_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise LabFailedError(f"{cannot}: ip did not end within {_MAKE_LIMIT_S:g} s") from error
        if made.returncode != 0:
            said = Completed((), made.returncode, made.stdout, made.stderr).last_words()
            raise LabFailedError(f"{cannot}: {said}")

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._namespace, *argv]


def _run(
    argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end; whatever ends this early ends all of its session."""
    with Child(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as started:
        try:
            out, err = started.communicate(stdin, timeout_s)
        except BaseException:
            # Not the program alone: what it started may hold the pipes open for ever.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, started.returncode, out, err)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a small environment: what programs need, nothing of the user's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TERM") if name in os.environ}
    kept["PATH"] = f"{kept.get('PATH', '')}:{_PATH}"
    return {**kept, "LC_ALL": "C.UTF-8", **extra}
