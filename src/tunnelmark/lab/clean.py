"""Leftovers of dead runs: found by their ledgers, removed and nothing else."""

from dataclasses import dataclass
from pathlib import Path

from tunnelmark.hosts.ledger import DeadLedger, dead_ledgers, read_journal


@dataclass(frozen=True)
class Leftover:
    """A run that is dead and whose ledger is still there: held, nobody else cleans it."""

    ledger: DeadLedger
    things: tuple[str, ...]
    """What its journal names."""

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.ledger.run_id

    @property
    def directory(self) -> Path:
        """Directory of its ledger."""
        return self.ledger.directory


def find_leftovers(root: Path | None = None) -> list[Leftover]:
    """Return every dead run that left something behind; ``clean`` or ``release`` lets go of them.

    What another ``clean`` has under way is not among them.
    """
    return [
        Leftover(
            ledger,
            tuple(f"{entry.kind} {entry.name}" for entry in read_journal(ledger.directory)),
        )
        for ledger in dead_ledgers(root)
    ]


def clean(leftovers: list[Leftover]) -> list[str]:
    """Remove them; return one line for each thing that was still there."""
    removed = []
    for leftover in leftovers:
        removed += leftover.ledger.clean()
        removed.append(f"ledger {leftover.directory}")
    return removed


def release(leftovers: list[Leftover]) -> None:
    """Let go of them as they are."""
    for leftover in leftovers:
        leftover.ledger.release()
