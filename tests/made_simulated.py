"""Runs of studies in virtual time, by the command that a user gives."""

from pathlib import Path
from typing import Final

from tunnelmark.cli import main
from tunnelmark.store import Result, open_result

OF_THE_RUN: Final = ("run_id", "worker")
"""Columns in which two runs of a study with the same seed differ."""


def simulated(
    tmp_path: Path, text: str, *arguments: str, name: str = "results", status: int = 0
) -> Result:
    """Run a study into the folder ``name``; its exit status must be ``status``."""
    study = tmp_path / "made.toml"
    study.write_text(text, encoding="utf-8")
    folder = tmp_path / name
    words = ["run", str(study), "--backend", "sim", "--results", str(folder), "--quiet"]
    assert main.call([*words, *arguments]) == status
    result = open_result(max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns))
    for row in result.trials().iter_rows(named=True):
        assert status or row["valid"], row["reasons"]
    return result
