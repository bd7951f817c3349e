"""Events of an emulator that runs beside all else: read on a thread, asked for at any time."""

import contextlib
import threading
from collections.abc import Callable

from tunnelmark.engine.events import Event, parse_event
from tunnelmark.model.errors import LabError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.host import Process

_ANSWER_LIMIT_S = 2.0


class EventPump:
    """Reads the events of an emulator on a thread, so that its output never fills the pipe."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.ready = threading.Event()
        """Set at the first event ``ready`` or ``error``, and when the process has ended."""
        self.error: str | None = None
        """What the engine's event ``error`` said."""
        self._fresh = threading.Condition()
        self._answers = 0
        self._last: Event | None = None
        self._answer: Event | None = None
        self._reported: Callable[[Event], None] = lambda _event: None

    @property
    def last(self) -> Event | None:
        """The last report that came, if one did."""
        with self._fresh:
            return self._last

    def start(
        self, process: Process, reported: Callable[[Event], None] = lambda _event: None
    ) -> None:
        """Read the lines of a process that was spawned with ``lines``.

        ``reported`` is called with every report, on the thread that reads; it must not wait.
        """
        self._reported = reported
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def ask(self, signal: Callable[[], object]) -> Event | None:
        """Ask for a report by ``signal`` (SIGUSR1) and return the answer; None if none comes.

        A report that was on its way anyway is none: it is of before.
        """
        with self._fresh:
            before = self._answers
            signal()
            self._fresh.wait_for(lambda: self._answers > before, timeout=_ANSWER_LIMIT_S)
            return self._answer if self._answers > before else None

    def _read(self, process: Process) -> None:
        while True:
            try:
                line = process.read_line(3600.0)
            except TimeoutError:
                continue
            except UnwritableError:
                break  # its ``poll`` tells whoever looks after it
            if line is None:
                break
            with contextlib.suppress(LabError):
                self._take(parse_event(line))
        self.ready.set()

    def _take(self, event: Event) -> None:
        match event["event"]:
            case "ready":
                self.ready.set()
            case "error":
                self.error = str(event.get("message"))
                self.ready.set()
            case "progress" | "summary":
                self._reported(event)
                with self._fresh:
                    self._last = event
                    if event.get("asked") is True or event["event"] == "summary":
                        self._answer = event
                        self._answers += 1
                        self._fresh.notify_all()
