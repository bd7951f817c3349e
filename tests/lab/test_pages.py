"""The tutorial and the how-tos are done as a reader would: each file saved, each command run.

The studies are smaller than those on the pages: one trial of each point, with little traffic.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import tomli_w

from skips import CONDITIONS
from small_study import smallest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400), pytest.mark.xdist_group("runs")]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = [DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]

_BLOCK: Final = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_FEW: Final[dict[str, object]] = {"packets": 20, "duration": "1 s", "most_calls": 1}
"""How much traffic a workload has here, by its key."""
_TUNNELMARK: Final = f"""#!/bin/sh
"{sys.executable}" -m tunnelmark.cli "$@"
status=$?
# 6: a busy computer made trials invalid, which says nothing about the page.
[ "$1" = run ] && [ $status -eq 6 ] && exit 0
exit $status
"""


class Step(NamedTuple):
    """A file to save, or commands to run."""

    form: str
    name: str
    text: str


def steps(page: Path) -> list[Step]:
    found = [Step(*one) for one in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [step for step in found if step.name or step.form == "sh"]


def _case(page: Path) -> Any:
    """A device is calibrated to the time that ciphers take: such a page runs alone."""
    calibrates = any("[[device]]" in step.text for step in steps(page))
    return pytest.param(page, marks=[pytest.mark.timing] * calibrates, id=page.stem)


@pytest.mark.parametrize("page", [_case(page) for page in PAGES])
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    if page.stem == "run-without-root" and CONDITIONS["no user namespaces"]():
        pytest.skip("the page is about user namespaces")
    out = " ".join(followed(page, tmp_path).split())
    for words in re.findall(r"^> (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert words in out, f"{page.name} shows a line that is not printed"


def followed(page: Path, folder: Path) -> str:
    """Do what a page says, in an empty folder; return what its commands printed."""
    program = folder / "bin/tunnelmark"
    program.parent.mkdir()
    program.write_text(_TUNNELMARK, encoding="utf-8")
    program.chmod(0o755)
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TUNNELMARK_RUNTIME": str(runtime), "COLUMNS": "200"}
    printed = ""
    for step in steps(page):
        if step.name:
            study = smallest(tomllib.loads(step.text), _FEW)
            (folder / step.name).write_text(tomli_w.dumps(study), encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{step.text}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout
    return printed


def test_every_page_has_something_to_do() -> None:
    for page in PAGES:
        forms = {step.form for step in steps(page)}
        assert "sh" in forms, page.name
