"""The one run that this server started: begun, followed by its events, ended on demand."""

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from tunnelmark.analysis.units import Unit, unit
from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.show import digits

_COMMAND: Final = (sys.executable, "-m", "tunnelmark.cli")
_LONGEST_LINE: Final = 1 << 20
_MOST_RECENT: Final = 12
_MOST_ERRORS: Final = 20
_FIGURES: Final = ("goodput_bit_s", "rtt_p50_ns", "loss_forward_ratio")
"""Shown of a trial beside the metric that decides."""
_ENDING_S: Final = 90.0
"""A run that is asked to end removes its tunnels and writes its report."""
_LAST_LINES_S: Final = 5.0
"""From the end of a run to the end of its pipes, which a process that it left behind keeps open."""


class BusyError(TunnelmarkError):
    """Another run is under way, or its last lines are still to be read."""


@dataclass
class Progress:
    """How far a run has come."""

    study: str
    scale: str
    result: str = ""
    """Name of its directory; empty until it is made."""
    phase: str = "checking all drivers"
    done: int = 0
    expected: int = 0
    left_s: float | None = None
    reported_at: float = field(default_factory=time.monotonic)
    """Monotonic seconds at which ``left_s`` was said."""
    valid: int = 0
    invalid: int = 0
    stopping: bool = False
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_ERRORS))
    skipped: tuple[str, ...] = ()
    outcome: str = ""
    """``complete``, ``interrupted`` or ``failed``; empty while it runs."""

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return bool(self.outcome)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, those since it was said taken off."""
        if self.left_s is None:
            return None
        return max(0.0, self.left_s - (time.monotonic() - self.reported_at))

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event of ``tunnelmark run --json`` in."""
        match event.get("event"):
            case "run_started":
                self.result = Path(str(event["directory"])).name
                self.expected = int(event["trials_min"])
                self._left(event["expected_s"])
                self.skipped = tuple(f"{label}: {why}" for label, why in event["skipped"])
            case "block_phase":
                self.phase = f"{event['tunnel']}, {event['link']}: {event['phase']}"
                if event["phase"] == "waiting":
                    self.phase += f": {event['message']}"
                if event["phase"] in {"failed", "again"}:
                    self.recent.append(f"{event['tunnel']}: {event['message']}")
            case "trial_done":
                self.done, self.expected = int(event["trials_done"]), int(event["trials_expected"])
                self._left(event["time_left_s"])
                self.valid += bool(event["valid"])
                self.invalid += not event["valid"]
                said = _figures(event) if event["valid"] else "; ".join(event["reasons"])
                mark = "" if event["valid"] else "invalid: "
                where = f"{event['tunnel']}, {event['workload']}, repeat {event['repeat']}"
                self.recent.append(f"{where}: {mark}{said}")
            case "run_ended":
                self.phase = f"{event['outcome']}; writing the report"
                if event["message"]:
                    self.errors.append(str(event["message"]))

    def _left(self, seconds: float) -> None:
        self.left_s, self.reported_at = float(seconds), time.monotonic()


class Runner:
    """Starts ``tunnelmark run`` as a process of its own, one at a time."""

    def __init__(self, results: Path, command: Sequence[str] = _COMMAND) -> None:
        """Take where results go; ``command`` is the command line ``tunnelmark``."""
        self._results = results
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._progress: Progress | None = None
        self._follower: threading.Thread | None = None

    def start(self, study: str, scale: str) -> None:
        """Start a built-in study; ``BusyError`` until the outcome of the last one is known.

        Nothing is waited for here: the follower needs the lock to tell the outcome.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise BusyError("another run is in progress: wait until it ends, or stop it")
            if self._progress is not None and not self._progress.ended:
                raise BusyError(
                    "the last run has just ended and its last lines are being read: "
                    "try again in a few seconds"
                )
            arguments = ["run", study, "--scale", scale, "--results", str(self._results), "--json"]
            # In a session of its own: Ctrl-C in the server's terminal is not the run's.
            self._process = process = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._progress = progress = Progress(study, scale)
            self._follower = threading.Thread(
                target=self._follow, args=(process, progress), name="run", daemon=True
            )
            self._follower.start()

    def stop(self) -> None:
        """Tell the run to end in order; nothing happens where none runs.

        With SIGTERM: where the server was started in the background of a script, its children
        ignore SIGINT until they listen to it.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return
            if self._progress is not None:
                self._progress.stopping = True
            self._process.terminate()

    def progress(self) -> Progress | None:
        """Return how far the last run that was started has come; None: none was."""
        with self._lock:
            return deepcopy(self._progress)

    def close(self) -> None:
        """End the run and wait until it has removed what it made."""
        self.stop()
        process = self._process
        if process is None:
            return
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the second one breaks off everything but its cleaning
            process.wait()
        if self._follower is not None:
            self._follower.join()

    def _follow(self, process: subprocess.Popen[bytes], progress: Progress) -> None:
        readers = [
            threading.Thread(target=read, args=(cast("IO[bytes]", pipe), progress), daemon=True)
            for read, pipe in (
                (self._read_events, process.stdout),
                (self._read_errors, process.stderr),
            )
        ]
        for reader in readers:
            reader.start()
        status = process.wait()
        end = time.monotonic() + _LAST_LINES_S
        for reader in readers:
            reader.join(max(0.0, end - time.monotonic()))
        with self._lock:
            if status == 0:
                progress.outcome = "complete"
            else:
                progress.outcome = "interrupted" if progress.stopping else f"failed ({status})"
            progress.phase = "ended"

    def _read_events(self, stream: IO[bytes], progress: Progress) -> None:
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                self._take(line, progress)

    def _take(self, line: bytes, progress: Progress) -> None:
        try:
            event = json.loads(line)
            with self._lock:
                if not progress.ended:  # what comes after the outcome would undo it
                    progress.take(event)
        except (ValueError, KeyError, TypeError, AttributeError):
            with self._lock:
                progress.errors.append(line.decode(errors="replace")[:500].strip())

    def _read_errors(self, stream: IO[bytes], progress: Progress) -> None:
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                text = line.decode(errors="replace")[:500].strip()
                with self._lock:
                    progress.errors.append(text)


def _figures(event: Mapping[str, Any]) -> str:
    words = []
    for name in dict.fromkeys((event["metric"], *_FIGURES)):
        value = event["figures"].get(name)
        if value is None:
            continue
        known = METRICS.get(name)
        shown = unit(name) if known else Unit(1.0, "")
        value *= shown.factor
        title = known.title if known else name
        words.append(f"{title} {value:.{digits(value, None)}f} {shown.name}".rstrip())
    return ", ".join(words) or "no figures"
