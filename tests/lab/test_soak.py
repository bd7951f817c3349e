"""A few seconds of `make soak`: every process of both tunnels is watched, the page is made."""

import subprocess
import sys
from pathlib import Path

import pytest
from soak import TUNNELS

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_SCRIPT = Path(__file__).parents[2] / "bench" / "soak.py"


@pytest.mark.usefixtures("engine")
def test_both_tunnels_are_watched(tmp_path: Path) -> None:
    page = tmp_path / "soak.md"
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "--seconds", "2", "--out", str(page)],
        capture_output=True,
        text=True,
        check=False,
    )
    # Two seconds are too few samples to call anything flat, and the script says so.
    assert done.returncode == 1, done.stdout + done.stderr
    rows = page.read_text(encoding="utf-8")
    for tunnel, _ in TUNNELS.values():
        assert f"not known to be flat: {tunnel}: memory of the emulator" in done.stdout
        for process in ("sender", "reflector", "emulator", "our Python process"):
            assert f"| {tunnel} | {process} | " in rows
        assert f"- {tunnel}: 20,000 packets sent" in rows
