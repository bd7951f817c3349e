"""A study job by job, as an array of Slurm runs it, put together: a result like that of one run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.report.summary import summarise
from tunnelmark.store import open_result

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("runs")]

_SCRIPT = Path(__file__).parents[2] / "docs" / "slurm-array.sh"
_TEXT = f"""
format = 1
name = "parts"
title = "Parts"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "100 %"
min_repeats = 2
max_repeats = 2
max_invalid = 20

{LOOSE_VALIDITY}
[[tunnel]]
kind = "openvpn"
cipher = ["AES-256-GCM", "CHACHA20-POLY1305"]

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 30
payload_bytes = 200
"""


def test_jobs_run_one_by_one_and_merged_report_as_one_run(
    study: Callable[[str], Any], tmp_path: Path
) -> None:
    one = study(_TEXT)
    ids = one.command("plan", str(one.file), "--ids").split()
    assert len(ids) == 2
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for number in (1, 2):
        subprocess.run(
            [str(_SCRIPT), str(one.file), str(tmp_path / "cluster")],
            env={**one.environment, "PATH": path, "SLURM_ARRAY_TASK_ID": str(number)},
            check=True,
            capture_output=True,
            timeout=240,
        )
    parts = sorted((tmp_path / "cluster" / "parts").iterdir())
    assert [open_result(part).manifest.jobs[0] for part in parts] == ids
    one.command("merge", *map(str, parts), "--into", str(tmp_path / "whole"))
    merged = open_result(tmp_path / "whole")
    assert merged.manifest.outcome == "complete"
    one.run()
    whole = open_result(one.directory)
    key = ["trial_id", "path", "block_id", "point_id", "pair_id", "repeat", "bring_up", "params"]
    assert whole.manifest.outcome == "complete"
    valid = [r.trials().filter(pl.col("valid")).select(key).sort(key) for r in (merged, whole)]
    assert valid[0].to_dicts() == valid[1].to_dicts()
    assert set(merged.blocks) == set(whole.blocks) == set(ids)
    points = [{(p.tunnel, p.workload) for p in summarise(r).points} for r in (merged, whole)]
    assert points[0] == points[1]
    assert "openvpn" in one.command("report", str(tmp_path / "whole"))
    assert one.leftovers() == []
