"""A few runs of `make chaos`: what is done to one at random loses nothing and leaves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

# Alone: what is killed is found again only if trials are not late for another reason.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(1800)]

_SCRIPT = Path(__file__).parents[2] / "bench" / "chaos.py"


@pytest.mark.usefixtures("engine")
def test_nothing_is_lost_or_left_behind(tmp_path: Path) -> None:
    words = ["--runs", "2", "--seed", "2026", "--side", "1", "--out", str(tmp_path / "chaos.md")]
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), *words, "--keep", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Runs with a fault: 0." in (tmp_path / "chaos.md").read_text()
