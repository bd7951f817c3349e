"""A program started on this machine by a host."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path

_LINE_LIMIT = 1 << 20
_LINES_KEPT = 100_000


class LocalProcess:
    """A process of this machine; ``model.host.Process`` says what its methods do."""

    def __init__(
        self,
        popen: "subprocess.Popen[bytes]",
        argv: tuple[str, ...],
        name: str,
        log: Path,
        *,
        lines: bool,
    ) -> None:
        """Take over a process that was just started; ``lines`` reads its standard output."""
        self._popen = popen
        self._argv = argv
        self._name = name
        self._log = log
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

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self._name} still runs after {timeout_s:g} s") from error

    def stop(self, grace_s: float = 2.0) -> int:
        """End it and everything it started in its session."""
        self._signal(signal.SIGTERM)
        try:
            return self._popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.wait()

    def kill(self) -> None:
        """Send KILL to it and to everything it started in its session."""
        self._signal(signal.SIGKILL)

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
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - (1 << 16)))
                text = log.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def _signal(self, number: int) -> None:
        if self._popen.poll() is not None:
            return
        # The process leads its own session, so its group has only what it started itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _read(self) -> None:
        assert self._popen.stdout is not None  # noqa: S101 - started with a pipe
        assert self._lines is not None  # noqa: S101 - likewise
        with self._popen.stdout as stream:
            while line := stream.readline(_LINE_LIMIT):
                with contextlib.suppress(queue.Full):
                    self._lines.put_nowait(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put(None)
