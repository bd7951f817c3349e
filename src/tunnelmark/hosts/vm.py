"""Hosts inside a machine: the machine itself, and a network namespace in it."""

import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from tunnelmark.hosts.vm_features import has_feature
from tunnelmark.hosts.vm_machine import Machine
from tunnelmark.hosts.vm_process import KILL, VmProcess
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.host import Completed

_ROOT: Final = PurePosixPath("/tunnelmark")
_EMULATED_PATIENCE: Final = 4.0
"""An emulated CPU is slow, and waits for a busy computer: ``ip`` once took more than 10 s."""
_OUTPUT_MAX: Final = 256 << 20
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


class VmHost:
    """A machine as a host; implements ``Host``. Whoever booted the machine closes it."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        unique: str,
        log_dir: Path,
        root: PurePosixPath = _ROOT,
        pid_base: int = 0,
    ) -> None:
        """``log_dir`` is the run's log directory here, ``root`` where it works in the machine.

        ``pid_base`` is added to process ids, so that those of several machines differ.
        """
        if not _UNIQUE.fullmatch(unique):
            raise LabError(f"machine {name}: {unique!r} is no name that starts with tm")
        if not _NAME.fullmatch(name):
            raise LabError(f"machine {name!r}: is no name of a host")
        self.machine = machine
        self._name = name
        self._unique = unique
        self._log_dir = log_dir
        self._pid_base = pid_base
        self._work_dir = root / unique
        self._processes: list[VmProcess] = []
        self._within: int | None = None
        self._call(["mkdir", "-p", "-m", "700", str(self._work_dir)], 10.0, None, _NO_ENV)

    @property
    def name(self) -> str:
        """The role in the lab."""
        return self._name

    @property
    def unique(self) -> str:
        """Short name, unique in the machine, that starts with ``tm``."""
        return self._unique

    @property
    def work_dir(self) -> PurePosixPath:
        """Directory of this run inside the machine; gone with it."""
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
        """Start a program that runs until it is stopped, or the machine ends."""
        if not _NAME.fullmatch(name):
            raise LabError(f"{self._name}: {name!r} is no name of a log")
        inside = self._privately(argv, name, private_dirs)
        number, pid = self.machine.start(inside, env, stdin=stdin is not None, within=self._within)
        process = VmProcess(
            tuple(argv),
            name=name,
            pid=self._pid_base + pid,
            log=self._log_dir / self._name / f"{name}.log",
            lines=lines,
            signal=lambda signal, group: self.machine.signal(number, signal, group=group),
        )
        self._processes.append(process)
        self.machine.listen(number, process)
        if stdin is not None:
            self.machine.feed(number, stdin)
        return process

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file (parents are made)."""
        self.machine.put(path, data, mode)

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file of at most ``limit_bytes``."""
        return self.machine.get(path, limit_bytes)

    def has(self, program: str) -> str | None:
        """Return the path of a program in the machine, or None."""
        return self.machine.which(program)

    def has_kernel(self, feature: str) -> bool:
        """Say whether the machine's kernel has a feature, by its modules and what is built in."""
        return has_feature(self._modules, feature)

    def stop_all(self) -> None:
        """End every program that was started through this host, newest first; the machine stays."""
        if self.machine.alive():
            for process in reversed(self._processes):
                process.stop(grace_s=1.0)

    def remove(self) -> None:
        """Undo what making this host made inside the machine: here nothing but its programs."""
        self.stop_all()

    def _privately(self, argv: Sequence[str], name: str, private_dirs: Sequence[str]) -> list[str]:
        if not private_dirs:
            return list(argv)
        pairs: list[str] = []
        for directory in private_dirs:
            if not directory.startswith("/") or ".." in PurePosixPath(directory).parts:
                raise LabError(f"{self._name}: {directory!r} is no absolute path without ..")
            copy = self._work_dir / "private" / name / directory.strip("/").replace("/", "-")
            pairs += [directory, str(copy)]
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", _PRIVATE, "private", *pairs, "--", *argv]

    def _call(
        self, argv: Sequence[str], timeout_s: float, stdin: bytes | None, env: Mapping[str, str]
    ) -> Completed:
        if self.machine.facts.emulated:
            timeout_s *= _EMULATED_PATIENCE
        number, _ = self.machine.start(argv, env, stdin=stdin is not None, within=self._within)
        collector = _Collector()
        self.machine.listen(number, collector)
        if stdin is not None:
            self.machine.feed(number, stdin)
        if not collector.end.wait(timeout_s):
            self.machine.signal(number, KILL)
            words = Completed(tuple(argv), -KILL, *collector.streams()).last_words()
            raise LabFailedError(
                f"{self._name}: {argv[0]}: not done after {timeout_s:g} s ({words})"
            )
        if collector.too_much:
            raise LabError(f"{self._name}: {argv[0]}: wrote more than {_OUTPUT_MAX} bytes")
        if collector.returncode == -KILL and not self.machine.alive():
            words = self.machine.console_tail()
            raise LabFailedError(f"{self._name}: {argv[0]}: the machine ended meanwhile: {words}")
        return Completed(tuple(argv), collector.returncode, *collector.streams())

    @cached_property
    def _modules(self) -> tuple[str, ...]:
        root = PurePosixPath("/lib/modules") / self.machine.facts.kernel
        found = []
        for index, separator in (("modules.dep", ":"), ("modules.builtin", "\n")):
            text = self.get(root / index, limit_bytes=16 << 20).decode("utf-8", "replace")
            found += [line.split(separator, 1)[0] for line in text.splitlines()]
        return tuple(found)


_HOLDER: Final = ("sh", "-c", "echo; exec sleep infinity")
_HOLDER_LIMIT_S: Final = 40.0


class VmNetnsHost(VmHost):
    """A network namespace inside a machine, made with its loopback up; gone with the machine."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        unique: str,
        log_dir: Path,
        root: PurePosixPath = _ROOT,
    ) -> None:
        """Make the namespace, which is called ``unique``."""
        super().__init__(machine, name=name, unique=unique, log_dir=log_dir, root=root)
        self.run(["ip", "netns", "add", unique])
        # It holds the namespace's own /sys, which ``ip`` mounts and every program here sees.
        self._holder = self.spawn(
            ["ip", "netns", "exec", unique, *_HOLDER], name="holder", lines=True
        )
        self._holder.read_line(_HOLDER_LIMIT_S)
        self._processes.clear()  # it is no program of the lab
        self._within = self._holder.pid
        self.run(["ip", "link", "set", "lo", "up"])

    @property
    def namespace(self) -> str:
        """Name of the network namespace in the machine."""
        return self.unique

    def remove(self) -> None:
        """Remove the namespace, so that another of its name can be made; idempotent."""
        super().remove()
        if self._within is not None and self.machine.alive():
            self._within = None
            self._holder.stop()
            self.run(["ip", "netns", "delete", self.unique])


class _Collector:
    """Keeps what a program writes, within bounds, until it has ended."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.returncode = 0
        self.too_much = False
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

    def streams(self) -> tuple[bytes, bytes]:
        out, err = self._streams
        return bytes(out), bytes(err)
