"""What became of a run of ``make chaos``, and the file that keeps it for the page."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_faults import Strike, Struck


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

    @property
    def missed(self) -> bool:
        """Whether it ended well before its moment had come."""
        return not self.struck.victim and not self.faults


def record(file: Path, outcome: Outcome) -> None:
    """Add a run to the file, a line of JSON each."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(dataclasses.asdict(outcome)) + "\n")


def kept(file: Path) -> list[Outcome]:
    """Return the runs of a file; none where there is no file yet."""
    if not file.exists():
        return []
    return [_parsed(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _parsed(document: dict[str, Any]) -> Outcome:
    strike = {**document["strike"], "tunnels": tuple(document["strike"]["tunnels"])}
    return Outcome(
        **{**document, "strike": Strike(**strike), "struck": Struck(**document["struck"])}
    )
