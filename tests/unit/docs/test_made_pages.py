"""Pages that are made from the program say what the program says."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tunnelmark.cli import main, run
from tunnelmark.model import errors
from tunnelmark.study import list_studies

DOCS = Path(__file__).parents[3] / "docs"
SCRIPTS = DOCS.parent / "scripts"


@pytest.mark.parametrize("name", ["commands", "drivers", "metrics", "study_keys"])
def test_a_made_page_is_current(name: str) -> None:
    # In a process of its own: click keeps the options of a command as it was first called.
    says = f"import {name}_page as made; print(made.page() == made.PAGE.read_text('utf-8'))"
    done = subprocess.run(
        [sys.executable, "-c", says], cwd=SCRIPTS, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n", "renew it with: make pages"


def test_each_table_of_a_study_has_its_keys_and_none_is_null() -> None:
    page = (DOCS / "study-keys.md").read_text(encoding="utf-8")
    assert "`null`" not in page
    tables = [part for part in page.split("\n## ") if part.startswith("`[[")]
    named = [part for part in tables if "`kind` chooses" in part]
    assert len(named) == 5
    assert all("\n| `kind` |" in part and "\n| `label` |" in part for part in named)


def test_the_pages_list_every_study_and_every_command() -> None:
    studies = (DOCS / "studies.md").read_text("utf-8").partition("## The built-in studies")[2]
    assert [name for name in list_studies() if f"`{name}`" not in studies] == []
    commands = (DOCS / "cli.md").read_text("utf-8")
    names = main.tunnelmark.list_commands(click.Context(main.tunnelmark))
    assert [name for name in names if f"\n| `{name}" not in commands] == []


def test_the_exit_statuses_are_those_of_the_program() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    of_errors = {kind.exit_code for kind in kinds if issubclass(kind, errors.TunnelmarkError)}
    statuses = {0, main.UNEXPECTED, main.USAGE, main.INTERRUPTED, run._NO_VALID_TRIAL} | of_errors
    in_help = re.findall(r"^  (\d+)  ", main.tunnelmark.epilog or "", re.MULTILINE)
    assert sorted(map(int, in_help)) == sorted(statuses)
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    section = page.partition("## Exit status")[2].partition("\n## ")[0]
    assert sorted(map(int, re.findall(r"^\| (\d+) \|", section, re.MULTILINE))) == sorted(statuses)
