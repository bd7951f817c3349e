"""A disk that fills up during a run: one line that names the file and what to do, at any moment."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from made_results import trial_result, write
from small_study import LOOSE_VALIDITY

pytestmark = pytest.mark.lab

_TEXT = f"""
format = 1
name = "full"
title = "A full disk"
seed = 7

[precision]
metric = "rtt_p50_ns"
min_repeats = 6
max_repeats = 6
max_invalid = 20

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 20
payload_bytes = 1400
"""
_RESULT_ERROR = 5
"""Exit status when results cannot be written (docs/cli.md)."""


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of so many KiB, where results go."""
    folder = tmp_path / "results"

    def make(kib: int) -> Path:
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, capture_output=True)
        return folder

    yield make
    subprocess.run(["umount", str(folder)], check=False, capture_output=True)


# At 4 KiB a page: the folders alone, the captures of the proof, records, trials.
@pytest.mark.parametrize("kib", [4, 24, 96])
def test_a_full_disk_is_one_line_with_the_way_out(
    study: Callable[[str], Any], results: Callable[[int], Path], kib: int
) -> None:
    results(kib)
    one = study(_TEXT)
    one.start()
    status = one.finish()
    assert status == _RESULT_ERROR, one.errors
    (line,) = one.errors.strip().splitlines()
    assert "cannot be written: No space left on device" in line
    assert "tunnelmark run --resume" in line
    assert str(one.folder / "results") in line
    assert one.leftovers() == []


# The ledger alone, and part of the copy.
@pytest.mark.parametrize("kib", [4, 64])
def test_no_space_for_the_copy_of_a_report_is_one_line_with_the_way_out(
    tmp_path: Path, results: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, kib: int
) -> None:
    directory = write(tmp_path, [trial_result("openvpn", 100, 1, {"rtt_p50_ns": 1e6})])
    (directory / "samples" / "x.rec").write_bytes(bytes(100_000))
    monkeypatch.delenv("TUNNELMARK_RUNTIME", raising=False)
    monkeypatch.setenv("TMPDIR", str(results(kib)))
    words = ["tunnelmark", "report", directory.as_uri()]
    done = subprocess.run(
        [Path(sys.executable).with_name(words[0]), *words[1:]],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == _RESULT_ERROR, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "No space left on device" in line
    assert "TMPDIR" in line
