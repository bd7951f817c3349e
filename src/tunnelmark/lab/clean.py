"""Leftovers of dead runs: found by their ledgers, removed and nothing else."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tunnelmark.hosts.ledger import dead_ledgers, read_journal, undo


@dataclass(frozen=True)
class Leftover:
    """A run that is dead and whose ledger is still there."""

    run_id: str
    directory: Path
    things: tuple[str, ...]
    """What its journal names."""


def find_leftovers(root: Path | None = None) -> list[Leftover]:
    """Return every dead run that left something behind."""
    return [
        Leftover(
            run_id,
            directory,
            tuple(f"{entry.kind} {entry.name}" for entry in read_journal(directory)),
        )
        for run_id, directory in dead_ledgers(root)
    ]


def clean(leftovers: list[Leftover]) -> list[str]:
    """Remove them; return one line for each thing that was still there."""
    removed = []
    for leftover in leftovers:
        removed += undo(leftover.run_id, read_journal(leftover.directory))
        shutil.rmtree(leftover.directory, ignore_errors=True)
        removed.append(f"ledger {leftover.directory}")
    return removed
