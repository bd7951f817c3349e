"""A program started on this machine by a host."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path

from tunnelmark.hosts.families import Family
from tunnelmark.hosts.log import last_lines
from tunnelmark.model.child import Child

_LINE_LIMIT = 1 << 20
_LINES_KEPT = 100_000


class LocalProcess:
    """A process of this machine; ``model.host.Process`` says what its methods do."""

    def __init__(
        self,
        popen: Child,
        argv: tuple[str, ...],
        name: str,
        log: Path,
        *,
        lines: bool,
        family: Family | None = None,
    ) -> None:
        """Take over a process that was just started; ``lines`` reads its standard output.

        What it forks is in its ``family``, where there is one.
        """
        self._popen = popen
        self._argv = argv
        self._name = name
        self._log = log
        self._family = family
        self._lines: queue.Queue[str | None] | None = None
        if lines:
            self._lines = queue.Queue(_LINES_KEPT)
            threading.Thread(target=self._read, name=f"read {name}", daemon=True).start()

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return self._argv

    @property
    def name(self) -> str:
        """What the run calls it."""
        return self._name

    @property
    def pid(self) -> int:
        """Process id on this machine."""
        return self._popen.pid

    @property
    def host_pid(self) -> int:
        """The same: the host is this machine."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        if (status := self._popen.poll()) is not None and self._family is not None:
            self._family.leave()
        return status

    def wait(self, timeout_s: float) -> int:
        """Wait for the end."""
        try:
            status = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self._name} still runs after {timeout_s:g} s") from error
        self.poll()
        return status

    def stop(self, grace_s: float = 2.0) -> int:
        """End it and everything it started."""
        self._signal(signal.SIGTERM)
        try:
            self._popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        status = self._popen.wait()
        self._end_family()
        return status

    def kill(self) -> None:
        """Kill it and everything it started."""
        self._signal(signal.SIGKILL)
        self._end_family()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def read_line(self, timeout_s: float) -> str | None:
        """Return the next line of standard output."""
        if self._lines is None:
            raise RuntimeError(f"{self._name} was not spawned with lines=True")
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as error:
            raise TimeoutError(f"{self._name} wrote nothing for {timeout_s:g} s") from error
        if line is None:
            self._lines.put(None)  # the end stays the end for the next reader
        return line

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of its log."""
        return last_lines(self._log, lines)

    def _signal(self, number: int) -> None:
        if self._popen.poll() is not None:
            return
        # The process leads its own session, so its group has only what it started itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _end_family(self) -> None:
        if self._family is not None:
            self._family.end()
            self._family = None

    def _read(self) -> None:
        assert self._popen.stdout is not None  # noqa: S101 - started with a pipe
        assert self._lines is not None  # noqa: S101 - likewise
        with self._popen.stdout as stream:
            while line := stream.readline(_LINE_LIMIT):
                with contextlib.suppress(queue.Full):
                    self._lines.put_nowait(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put(None)
