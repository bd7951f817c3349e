"""The programs and files of one trial on both hosts: whoever opens them here, closes them here."""

import contextlib
import secrets
import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, Self

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.trial import Progress
from tunnelmark.workloads.base import TrialContext

LISTEN_LIMIT_S: Final = 20.0
"""So long a server may take until it listens; an emulated machine takes seconds."""
_LOOK_S: Final = 0.25
_LISTEN_POLL_S: Final = 0.05
_END_LIMIT_S: Final = 3.0
_DEATH_LIMIT_S: Final = 0.5
_REPORT_LIMIT_S: Final = 15.0
"""How long a client that is asked to end may take for its report, on a machine that is busy."""
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "rootfs"})
_SHARED_MEMORY: Final = PurePosixPath("/dev/shm")  # noqa: S108 - a directory of our own in it


class Bench:
    """Starts programs, follows them and ends them; makes directories in memory, removes them.

    Use as a context manager. Names are unique, so that two workloads may run in one trial.
    """

    def __init__(self, context: TrialContext, name: str) -> None:
        """Prepare; nothing is started yet. ``name`` is the workload's."""
        self._context = context
        self._name = f"{name}-{secrets.token_hex(3)}"
        self._processes: list[Process] = []
        self.enough = False
        """Whether the clients were ended because no more was wanted of them."""
        self._directories: dict[str, tuple[Host, PurePosixPath]] = {}

    def __enter__(self) -> Self:
        """Return the bench."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every program, newest first, and remove the directories."""
        for process in reversed(self._processes):
            process.stop(_END_LIMIT_S)
        for host, path in self._directories.values():
            host.run(["rm", "-rf", "--", str(path)], check=False)

    def directory(self, host: Host) -> PurePosixPath:
        """Return a directory of this trial alone that lies in the host's memory."""
        if host.unique not in self._directories:
            path = _in_memory(host, self._name)
            self._directories[host.unique] = (host, path)
            # Fails if it is there: nothing is ever put where somebody else could look.
            host.run(["mkdir", "-m", "700", "--", str(path)])
        return self._directories[host.unique][1]

    def start(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        lines: bool = False,
        measures: bool = True,
        private_dirs: Sequence[str] = (),
        sends: bool = True,
    ) -> Process:
        """Start a program; ``measures`` counts its CPU as that of the measuring programs.

        One of the client ``sends`` from its start on; a server does when it is asked.
        """
        if sends and host is self._context.client:
            self._context.begins()
        process = host.spawn(
            argv,
            name=f"{self._name}-{name}",
            stdin=stdin,
            lines=lines,
            private_dirs=private_dirs,
        )
        self._processes.append(process)
        if measures:
            self._context.measuring_processes(host.name, process.pid)
        return process

    def listening(
        self,
        host: Host,
        server: Process,
        address: str,
        port: int,
        *,
        kind: Literal["tcp", "udp"] = "tcp",
    ) -> None:
        """Wait until a port of an address is listened on.

        ``LabError`` if the server ends or is late.
        """
        deadline = time.monotonic() + LISTEN_LIMIT_S
        argv = ["ss", "-H", "-l", "-n", f"--{kind}", "src", _socket(address, port)]
        while True:
            last = time.monotonic() >= deadline
            if (status := server.poll()) is not None:
                raise LabError(
                    f"{server.argv[0]} on {host.name} ended with status {status} before it "
                    f"listened on {kind} {_socket(address, port)}: {words(server)}"
                )
            if host.run(argv).stdout.strip():
                return
            if last:
                raise LabError(
                    f"{server.argv[0]} on {host.name} did not listen on {kind} "
                    f"{_socket(address, port)} within {LISTEN_LIMIT_S:g} s: {words(server)}"
                )
            time.sleep(_LISTEN_POLL_S)

    def follow(
        self,
        clients: Sequence[Process],
        servers: Sequence[Process],
        *,
        expected_s: float,
        limit_s: float,
    ) -> list[str]:
        """Wait for the clients' ends; return what went wrong, after which all of them have ended.

        A server that dies, the limit and a wish to end early each end the clients; ``enough`` does
        too, and is not a problem.
        """
        start = time.monotonic()
        while running := [client for client in clients if client.poll() is None]:
            elapsed = time.monotonic() - start
            reason = self._reason_to_end(servers, elapsed, limit_s)
            self.enough = reason is None and self._context.enough()
            if reason is not None or self.enough:
                for client in running:
                    client.stop(_REPORT_LIMIT_S)
                return [reason] if reason else []
            self._context.progress(Progress(min(1.0, elapsed / max(expected_s, 1e-3)), {}))
            try:
                running[0].wait(_LOOK_S)
            except TimeoutError:
                continue
        if any(client.poll() for client in clients):
            # A client that is refused by a server that has just died ends before that is seen.
            with contextlib.suppress(TimeoutError):
                servers[0].wait(_DEATH_LIMIT_S)
            return _deaths(servers)
        return []

    def _reason_to_end(
        self, servers: Sequence[Process], elapsed_s: float, limit_s: float
    ) -> str | None:
        if deaths := _deaths(servers):
            return deaths[0]
        if self._context.cancelled():
            return "the trial was ended early"
        if elapsed_s > limit_s:
            return f"not done after {limit_s:.0f} s, the limit for these parameters"
        return None


def _deaths(servers: Sequence[Process]) -> list[str]:
    # One that serves a single client ends with 0 a moment before the client does.
    return [
        f"{server.argv[0]} on the server died with status {status}: {words(server)}"
        for server in servers
        if (status := server.poll())
    ]


def words(process: Process) -> str:
    """Return the last line a program wrote, for messages."""
    return process.log_tail(1).strip() or f"exit status {process.poll()}, no output"


def _socket(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _in_memory(host: Host, name: str) -> PurePosixPath:
    """Return the path of a directory, named after the run, in memory: no disk is measured."""
    kind = host.run(["stat", "-f", "-c", "%T", "--", str(host.work_dir)]).text().strip()
    if kind in _IN_MEMORY:
        return host.work_dir / name
    # The ledger of the run removes what carries its name there, after a kill too.
    return _SHARED_MEMORY / f"{host.unique}-{name}"
