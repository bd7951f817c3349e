"""What lab tests need: root, the engine, and a way to run whole studies as a user would."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from processes import command_line, command_lines
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger

Event = dict[str, Any]


@pytest.fixture
def engine() -> str:
    return find_engine()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    root = tmp_path / "runtime"
    root.mkdir(mode=0o700)
    with Ledger(root) as made:
        yield made


class Study:
    """A study that runs as a process of its own, with its own folder for ledgers."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.file = folder / "study.toml"
        self.file.write_text(text, encoding="utf-8")
        # A machine's socket lies in it, whose path may not be long; that of the folder is.
        self.runtime = Path(tempfile.mkdtemp(prefix="tm"))
        self.environment = {**os.environ, "TUNNELMARK_RUNTIME": str(self.runtime)}
        self.events: list[Event] = []
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        words = arguments or (str(self.file),)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tunnelmark.cli", "run", "--json", *self._results(), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        return self.process

    def kill(self) -> None:
        """kill -9 of the run, as a full machine or an impatient user does it."""
        assert self.process is not None
        self.process.kill()
        # What it had written before it died is read, so that no pipe stays open.
        out, _ = self.process.communicate(timeout=60)
        self.events += [json.loads(line) for line in out.splitlines() if line.endswith("}")]

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Read events until one is wanted; fail with what the run said if none comes."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: Event = json.loads(line)
            self.events.append(event)
            if wanted(event):
                return event
        assert self.process.stderr is not None
        pytest.fail(f"the run ended before the event: {self.process.stderr.read()}")

    def finish(self, limit_s: float = 240) -> int:
        assert self.process is not None
        out, err = self.process.communicate(timeout=limit_s)
        self.events += [json.loads(line) for line in out.splitlines()]
        self.errors = err
        return self.process.returncode

    def run(self, *arguments: str) -> list[Event]:
        """Run to the end; the exit status must be 0."""
        self.start(*arguments)
        status = self.finish()
        assert status == 0, self.errors
        return self.events

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tunnelmark.cli", *words],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=60,
            check=True,
        )
        return done.stdout

    @property
    def run_id(self) -> str:
        return str(self.of("run_started")[0]["run_id"])

    @property
    def directory(self) -> Path:
        return Path(self.of("run_started")[0]["directory"])

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def trials(self) -> pl.DataFrame:
        """All trials of the run, valid or not, a row for each path and one for all together."""
        return pl.concat(
            [pl.read_parquet(path) for path in self.directory.glob("trials/*.parquet")],
            how="diagonal_relaxed",
        )

    def leftovers(self) -> list[str]:
        """What is still there of this study's runs: namespaces, processes inside them, ledgers."""
        found = []
        for run in {event["run_id"] for event in self.of("run_started")}:
            names = subprocess.run(
                ["ip", "netns", "list"], capture_output=True, text=True, check=True
            ).stdout.split()
            found += [name for name in names if name.startswith(run)]
            ledgers = [path.name for path in self.runtime.iterdir()]
            found += [name for name in ledgers if name == run]
            found += [
                words.replace(b"\0", b" ").decode(errors="replace")
                for pid, words in command_lines().items()
                if run.encode() in words and pid != os.getpid()
            ]
        return found

    def inhabitants(self, role: str, program: str) -> list[int]:
        """Process ids of a program in one namespace of the run."""
        done = subprocess.run(
            ["ip", "netns", "pids", f"{self.run_id}-{role}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(pid) for pid in done.stdout.split() if program.encode() in command_line(pid)]

    def _results(self) -> tuple[str, str]:
        return "--results", str(self.folder / "results")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Callable[[str], Study]]:
    made: list[Study] = []

    def make(text: str) -> Study:
        find_engine()
        made.append(Study(tmp_path, text))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None and one.process.poll() is None:
            one.kill()
        if one.of("run_started"):
            one.command("clean")
        one.runtime.rmdir()
