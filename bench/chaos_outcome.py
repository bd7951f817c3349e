"""What became of a run of ``make chaos``, and the file that keeps it for the page."""

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_faults import Strike, Struck
from chaos_study import Tally


@dataclass
class Outcome:
    """What became of one run."""

    seed: int
    number: int
    strike: Strike
    struck: Struck = field(default_factory=Struck)
    faults: list[str] = field(default_factory=list)
    lost_tunnels: list[str] = field(default_factory=list)
    """With their causes."""
    attempts: int = 0
    """Bring-ups that failed and were tried again."""
    invalid: int = 0
    """Trials."""
    resumes: int = 0
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)
    commit: str = ""
    day: str = ""
    """Of the program, and in UTC; empty in records of before."""

    @property
    def missed(self) -> bool:
        """Whether it ended well before its moment had come."""
        return not self.struck.victim and not self.faults


def record(file: Path, outcome: Outcome) -> None:
    """Add a run to the file, a line of JSON each."""
    with file.open("a+b") as lines:
        if lines.tell():
            lines.seek(-1, os.SEEK_END)
            if lines.read() != b"\n":  # it was killed while it wrote
                lines.write(b"\n")
        lines.write((json.dumps(dataclasses.asdict(outcome)) + "\n").encode())


def kept(file: Path) -> list[Outcome]:
    """Return the runs of a file, without half lines; none where there is no file yet."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(_parsed(json.loads(line)))
    return found


def latest(runs: Sequence[Outcome]) -> list[Outcome]:
    """Return the last record of each run: one of a seed may have been done again."""
    return list({(one.seed, one.number): one for one in runs}.values())


@functools.cache
def commit() -> str:
    """Return the version of the program as Git describes it; empty where it cannot."""
    words = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(
        words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _parsed(document: dict[str, Any]) -> Outcome:
    strike = {**document["strike"], "tunnels": tuple(document["strike"]["tunnels"])}
    parts = {
        "strike": Strike(**strike),
        "struck": Struck(**document["struck"]),
        "tally": Tally(**document.get("tally", {})),
    }
    return Outcome(**{**document, **parts})
