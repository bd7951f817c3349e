"""One run of ``make chaos`` as a process of its own, and what of it is on this machine."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tunnelmark.hosts.ledger import start_time
from tunnelmark.store import Result, open_result

ITSELF: Final = "the run itself"
_ENDING_S: Final = 15.0
"""What was killed may take so long to be gone on a busy computer."""
_PLACES: Final = tuple(
    Path(name)
    for name in ("/dev/shm", "/etc/netns", "/run", "/tmp", "/var/tmp")  # noqa: S108
)
"""Where names with a run id in them are looked for."""


class Run:
    """A study that runs; ``folder`` has its results, ``runtime`` the ledgers, perhaps of others."""

    def __init__(self, folder: Path, runtime: Path, text: str) -> None:
        """Write the study; nothing is started."""
        self.folder, self.runtime = folder, runtime
        self.study = folder / "study.toml"
        self.study.write_text(text, encoding="utf-8")
        self.results, self.temporary = folder / "results", folder / "tmp"
        self.results.mkdir()
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "TUNNELMARK_RUNTIME": str(runtime),
            "TMPDIR": str(self.temporary),
        }
        self.errors = folder / "errors.txt"
        self.events: list[dict[str, Any]] = []
        self.seen: dict[int, int] = {}
        """Processes that it had: id and start time."""
        self.phase = ""
        """That it was in by its last events."""
        self.process: subprocess.Popen[str] | None = None
        self._ids: set[str] = set()
        self._lines: queue.Queue[str | None] = queue.Queue()

    def start(self, *words: str, inside: Sequence[str] = ()) -> None:
        """Start it, by the words of another program if those are given."""
        # It ends with this program, and what the keyboard says to this one does not reach it.
        argv = ["setpriv", "--pdeathsig", "KILL", *inside]
        argv += [sys.executable, "-m", "tunnelmark.cli", "run", "--json"]
        with self.errors.open("a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [*argv, "--results", str(self.results), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
                process_group=0,
            )
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self.process, self._lines), daemon=True).start()

    def next_event(self, deadline: float) -> dict[str, Any] | None:
        """Return the next event; None at the end. ``TimeoutError`` at the deadline."""
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        self.run_ids()
        if line is None:
            self._lines.put(None)  # the end stays the end
            return None
        event: dict[str, Any] = json.loads(line)
        self.events.append(event)
        if event["event"] == "block_phase":
            self.phase = event["phase"]
        return event

    def catch_up(self) -> None:
        """Take the events that are there by now."""
        with contextlib.suppress(TimeoutError):
            while self.next_event(time.monotonic()) is not None:
                pass

    def finish(self, limit_s: float) -> int:
        """Read it to its end and return its exit status; ``TimeoutError``, killed, past a limit."""
        assert self.process is not None  # noqa: S101 - started before
        deadline = time.monotonic() + limit_s
        try:
            while self.next_event(deadline) is not None:
                pass
        except TimeoutError:
            self.process.kill()
            self.process.wait()
            raise
        return self.process.wait(60)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    def finished(self) -> set[str]:
        """Return the trials that it reported as done and valid."""
        return {event["trial_id"] for event in self.of("trial_done") if event["valid"]}

    def result(self) -> Result | None:
        """Return its result; None if it has none. ``ResultError`` if it cannot be read."""
        directory = self.directory
        return None if directory is None else open_result(directory)

    @property
    def directory(self) -> Path | None:
        """The result directory."""
        return next(iter(self.directories), None)

    @property
    def directories(self) -> list[Path]:
        """All result directories that there are; there must be one."""
        return sorted(path.parent for path in self.results.glob("*/manifest.json"))

    def run_ids(self) -> set[str]:
        """Return its own ids, and those of all ledgers that were ever seen beside it."""
        self._ids |= {event["run_id"] for event in self.of("run_started")}
        with contextlib.suppress(FileNotFoundError):
            self._ids |= {path.name for path in self.runtime.iterdir()}
        return self._ids

    def processes(self) -> dict[int, int]:
        """Return what runs for it now: id and start time of itself and of all that it started."""
        assert self.process is not None  # noqa: S101 - started before
        own = {event["run_id"] for event in self.of("run_started")}
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.name))
        found, todo = {}, [self.process.pid, *_inhabitants(own)]
        while todo:
            pid = todo.pop()
            if pid not in found and (started := start_time(pid)) is not None:
                found[pid] = started
                todo += children.get(pid, [])
        self.seen |= found
        return found

    def clean(self) -> str | None:
        """Call ``clean`` beside it; return what was wrong with that, or None."""
        words = [sys.executable, "-m", "tunnelmark.cli", "clean"]
        done = subprocess.run(
            words,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            process_group=0,
        )
        return None if done.returncode == 0 else f"clean: {last_line(done.stderr)}"

    def leftovers(self, *, in_results: bool = True) -> list[str]:
        """Return what is still there of it, and of all that ran in the same ``runtime``.

        ``in_results`` says that files of its own folders are not to be there either.
        """
        deadline = time.monotonic() + _ENDING_S
        while (found := self._leftovers(in_results)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _leftovers(self, in_results: bool) -> list[str]:
        found = [f"process {pid}" for pid, t in self.seen.items() if start_time(pid) == t]
        found += self._strays()
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        names = words_of("ip", "netns", "list")
        # Not Path.rglob: it fails where a group of another run goes meanwhile.
        groups = [path for path, _, _ in os.walk("/sys/fs/cgroup")]
        for run_id in self.run_ids():
            found += [f"namespace {name}" for name in names if name.startswith(run_id)]
            found += [f"mount {line}" for line in mounts if run_id in line]
            found += [f"left {path}" for where in _PLACES for path in where.glob(f"*{run_id}*")]
            found += [f"group {path}" for path in groups if Path(path).name.startswith(run_id)]
        # The results themselves may be a small disk.
        found += [
            f"mount {line}"
            for line in mounts
            if f" {self.folder}/" in line and f" {self.results} " not in line
        ]
        found += [f"ledger {path.name}" for path in self.runtime.iterdir()]
        if in_results:
            found += [f"file {path}" for path in self.temporary.iterdir()]
            found += [f"part {path}" for path in self.results.rglob("*.part")]
        return found

    def _strays(self) -> list[str]:
        """Return the processes that have its environment, or a run id in their words or folder.

        Not those of which nothing can be read: they have ended.
        """
        marks = {
            f"TMPDIR={self.temporary}".encode(),
            f"TUNNELMARK_RUNTIME={self.runtime}".encode(),
        }
        ids = [os.fsencode(run_id) for run_id in self.run_ids()]
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (path / "environ").read_bytes().split(b"\0")
                words = (path / "cmdline").read_bytes()
                text = words + os.fsencode((path / "cwd").readlink())
                if marks.intersection(environment) or any(run_id in text for run_id in ids):
                    shown = words.replace(b"\0", b" ").decode(errors="replace").strip()
                    found.append(f"process {path.name}: {shown}")
        return found


def last_line(text: str) -> str:
    """Return the last words of a program."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no words"


def words_of(*argv: str) -> list[str]:
    """Return the words that a program prints."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, process_group=0)
    return done.stdout.split()


def _inhabitants(run_ids: set[str]) -> list[int]:
    names = [name for name in words_of("ip", "netns", "list") if name.partition("-")[0] in run_ids]
    return [int(word) for name in names for word in words_of("ip", "netns", "pids", name)]


def _read(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    with process.stdout as stream:
        for line in stream:
            if line.endswith("}\n"):  # a killed run may have left half a line
                lines.put(line)
    lines.put(None)
