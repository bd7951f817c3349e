"""A program that runs inside a machine."""

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tunnelmark.hosts.log import last_lines
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.faults import writing

TERM: Final = 15
KILL: Final = 9

_LINE_MAX: Final = 1 << 20


class VmProcess:
    """Implements ``Process``; output goes to a log on this side, or is read by lines."""

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        name: str,
        pid: int,
        pid_base: int = 0,
        log: Path,
        lines: bool,
        signal: Callable[[int, bool], None],
    ) -> None:
        """Make the log; ``UnwritableError`` if that is impossible.

        ``signal`` sends one to the program (True: and to what it started).
        ``pid`` is the one there, ``pid_base`` what distinguishes it from those of other machines.
        """
        self._argv = argv
        self._name = name
        self._log = log
        self._lines: queue.SimpleQueue[str | None] | None = queue.SimpleQueue() if lines else None
        self._rest = b""
        self._signal = signal
        self._pid = pid
        self._pid_base = pid_base
        self._returncode: int | None = None
        self._failure: Exception | None = None
        self._end = threading.Event()
        self._news = threading.Event()
        """It has ended, or its log could not be written."""
        with writing(log):
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            log.touch(mode=0o600)

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments, as the caller gave them."""
        return self._argv

    @property
    def name(self) -> str:
        """What the run calls it; also the name of its log."""
        return self._name

    @property
    def pid(self) -> int:
        """Process id, which no other machine's process has."""
        return self._pid_base + self._pid

    @property
    def host_pid(self) -> int:
        """Process id inside the machine."""
        return self._pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs.

        This, ``wait`` and ``read_line`` raise ``UnwritableError`` once its log could not be
        written; ``stop`` does not, for whoever removes it.
        """
        self._raise_failure()
        return self._returncode

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit status; ``TimeoutError`` if it does not come."""
        self._news.wait(timeout_s)
        self._raise_failure()
        return self._status(timeout_s)

    def stop(self, grace_s: float = 2.0) -> int:
        """End it (TERM, then KILL after the grace time) and return the exit status; idempotent."""
        if self._returncode is None:
            self._send(TERM)
            try:
                self._ended_within(grace_s)
            except TimeoutError:
                self.kill()
        else:
            # It ended by itself; what it started may still be there.
            self.kill()
        try:
            return self._ended_within(10.0)
        except TimeoutError:
            raise LabFailedError(f"{self._name}: did not exit within 10 s of SIGKILL") from None

    def kill(self) -> None:
        """Send KILL to it and to what it started."""
        self._send(KILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self._returncode is None:
            self._signal(number, False)

    def read_line(self, timeout_s: float) -> str | None:
        """Return the next line of standard output, None at its end; ``TimeoutError`` if late."""
        if self._lines is None:
            raise LabError(f"{self._name}: was not started to be read by lines")
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"{self._name}: no line after {timeout_s:g} s") from None
        if line is None:
            self._lines.put(None)
            self._raise_failure()
        return line

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of its log, for error messages."""
        return last_lines(self._log, lines)

    def output(self, stream: int, data: bytes) -> None:
        """Take output from the channel; ``UnwritableError`` if the log cannot be written."""
        if self._lines is None or stream != 1:
            if self._failure is not None:
                return  # behind a gap it would be read as if nothing were missing
            # Opened for each piece: a daemon's children may write long after its own end.
            with writing(self._log), self._log.open("ab") as file:
                file.write(data)
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._lines.put(line.decode("utf-8", "replace"))
        if len(self._rest) > _LINE_MAX:
            # Nothing we start writes lines like that; memory stays bounded if something does.
            self._rest = self._rest[:_LINE_MAX]

    def ended(self, returncode: int) -> None:
        """Take the end from the channel."""
        if self._end.is_set():
            return
        self._returncode = returncode
        if self._lines is not None:
            if self._rest:
                self._lines.put(self._rest.decode("utf-8", "replace"))
            self._lines.put(None)
        self._end.set()
        self._news.set()

    def failed(self, error: Exception) -> None:
        """Keep what ``output`` raised in the channel's thread, for whoever uses this program."""
        self._failure = self._failure or error
        if self._lines is not None:
            self._lines.put(None)  # whoever waits for a line need not wait for the program's end
        self._news.set()

    def _ended_within(self, timeout_s: float) -> int:
        self._end.wait(timeout_s)
        return self._status(timeout_s)

    def _status(self, timeout_s: float) -> int:
        if self._returncode is None:
            raise TimeoutError(f"{self._name}: still runs after {timeout_s:g} s")
        return self._returncode

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send(self, number: int) -> None:
        try:
            self._signal(number, True)
        except LabError:
            # A machine that is gone has ended all its programs.
            if self._returncode is None and not self._end.wait(5.0):
                raise
