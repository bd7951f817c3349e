"""What a driver may ask of the place it runs programs on (idea 1 of the design)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Completed:
    """A program that has ended."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    def text(self) -> str:
        """Return standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    def last_words(self) -> str:
        """Return the last line the program wrote, standard error first, for error messages."""
        for stream in (self.stderr, self.stdout):
            lines = stream.decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1].strip()
        return f"exit status {self.returncode}, no output"


@runtime_checkable
class Process(Protocol):
    """A program that was started on a host and that this run owns."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""

    @property
    def name(self) -> str:
        """What the run calls it, such as ``openvpn-server-0``; also the name of its log."""

    @property
    def pid(self) -> int:
        """Process id as seen by the host's CPU probe: it differs from those of other hosts."""

    @property
    def host_pid(self) -> int:
        """Process id as programs on its host know it."""

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit status; ``TimeoutError`` if it does not come."""

    def stop(self, grace_s: float = 2.0) -> int:
        """End it (TERM, then KILL after the grace time) and return the exit status; idempotent."""

    def kill(self) -> None:
        """Send KILL."""

    def read_line(self, timeout_s: float) -> str | None:
        """Return the next line of standard output, None at its end; ``TimeoutError`` if late.

        Only for processes spawned with ``lines=True``; the output of others goes to the log.
        """

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of its log, for error messages."""


class Host(Protocol):
    """A place to run programs: a namespace, a machine, a remote host.

    A driver never makes a host; it is handed hosts. All paths are paths on the host.
    """

    @property
    def name(self) -> str:
        """The role in the lab: ``client``, ``server``, ``link``."""

    @property
    def unique(self) -> str:
        """Short name that is unique on the machine, starts with ``tm`` and is a valid file name."""

    @property
    def work_dir(self) -> PurePosixPath:
        """Directory of this run on this host, readable by its owner only, removed with the lab."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] = ...,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end.

        Raises ``LabError`` with the program's last words if it cannot be started, does not end in
        time, or (with ``check``) ends with a status other than 0.
        """

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = ...,
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> Process:
        """Start a program that runs until it is stopped; it is ended with the host at the latest.

        Output goes to the log ``logs/<host>/<name>.log`` of the run; with ``lines`` standard output
        is read by ``Process.read_line`` instead. ``private_dirs`` are directories (``/run``,
        ``/etc/ppp``) over which the process, alone, sees a private copy of its own.
        """

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file (parents are made), never readable by others unless the mode says so."""

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file of at most ``limit_bytes``."""

    def has(self, program: str) -> str | None:
        """Return the path of a program on this host, or None."""

    def has_kernel(self, feature: str) -> bool:
        """Say whether the kernel has a feature: ``wireguard``, ``tun``, ``esp``, ``ppp`` …."""


@runtime_checkable
class MappedFiles(Protocol):
    """A host whose files only ours write: a long one is seen where it is, and not copied."""

    def mapped(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> memoryview:
        """Return what is in a file of at most ``limit_bytes``, also after it is removed."""


@runtime_checkable
class FixedHost(Protocol):
    """A host that has the programs of its image, and on which nothing can be installed."""

    def lacking(self, package: str) -> str:
        """Return why it has nothing of a Debian package: what follows ``vpnserver is``."""


@dataclass(frozen=True)
class Need:
    """What a driver needs of a host, and the package that contains it."""

    programs: Mapping[str, str] = field(default_factory=dict)
    """Program to Debian package, for example ``{"openvpn": "openvpn"}``."""
    kernel: tuple[str, ...] = ()
    """Kernel features by the names of ``Host.has_kernel``."""
    install: Mapping[str, str] = field(default_factory=dict)
    """Of programs that are no Debian package: the command that installs each."""

    def remedy(self, program: str) -> str:
        """Return the command that installs one of the programs."""
        return self.install.get(program) or f"apt-get install {self.programs[program]}"

    def missing(self, host: Host, behind: Host | None = None) -> str | None:
        """Return why this host cannot serve, with the command that fixes it, or None.

        ``behind`` is the host that this one stands before, if it stands before another.
        """
        for program, package in self.programs.items():
            if host.has(program) is None:
                if isinstance(place := behind or host, FixedHost):
                    return f"{program} is {place.lacking(package)}"
                return f"{program} is not installed ({self.remedy(program)})"
        for feature in self.kernel:
            if not host.has_kernel(feature):
                return f"the kernel has no {feature}"
        return None
