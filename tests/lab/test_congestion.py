"""TCP uses the congestion control that a study names, trial by trial, and the report names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

# Beside studies that use TCP the computer's list would be theirs, too.
pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("runs")]

_TEXT = f"""
format = 1
name = "congestion"
title = "Congestion"
seed = 7

[precision]
metric = "rr_transactions_per_s"
metrics = {{ tcp_bulk = "tcp_goodput_bit_s" }}
min_repeats = 2
max_repeats = 2
max_invalid = 20

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "1 ms"

[[workload]]
kind = "tcp_bulk"
label = "own"
duration = "1 s"

[[workload]]
kind = "request_response"
label = "named"
duration = "200 ms"
congestion = "reno"
"""


def test_each_trial_has_its_own_and_says_so(study: Callable[[str], Any]) -> None:
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    one = study(_TEXT)
    one.run()
    frame = one.trials().filter(pl.col("path") == "total")
    found = {"own": set(), "named": set()}  # type: dict[str, set[tuple[str, str, bool]]]
    for workload, details in frame.select("workload", "details").iter_rows():
        reported = json.loads(details)["congestion_control"]
        found[workload].add((reported["client"], reported["server"], reported["chosen"]))
        if workload == "own":
            # The kernel of the sending socket says the same, by iperf3.
            assert json.loads(details)["congestion"] == [own]
    assert found == {"own": {(own, own, False)}, "named": {("reno", "reno", True)}}
    report = one.command("report", str(one.directory))
    words = " ".join(report.split())
    assert "TCP of named used the congestion control reno, as the study requires." in words
    assert f"TCP of own used the congestion control {own}, the kernel's default" in words


_LIST = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_KERNEL_HAS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_withheld_is_allowed_until_the_run_ends(
    study: Callable[[str], Any], killed: bool
) -> None:
    before = _LIST.read_text(encoding="ascii").split()
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    name = "cubic"
    assert name in _KERNEL_HAS.read_text(encoding="ascii").split()
    withheld = own != name and name not in before
    # Where it is not withheld, it is still set, and the list is still as before.
    one = study(_TEXT.replace('label = "own"', 'label = "bulk"\ncongestion = "cubic"'))
    one.start()
    one.until(lambda event: event["event"] == "trial_done" and event["workload"] == "bulk")
    assert name in _LIST.read_text(encoding="ascii").split()
    if killed:
        one.kill()
        one.command("clean")
    else:
        assert one.finish() == 0, one.errors
        environment = json.loads((one.directory / "manifest.json").read_text())["environment"]
        assert environment.get("tcp allowed by the run") == (name if withheld else None)
        reported = [
            (json.loads(details)["congestion_control"]["client"], json.loads(details)["congestion"])
            for path in one.directory.glob("trials/*.parquet")
            for (details,) in pl.read_parquet(path)
            .filter((pl.col("path") == "total") & (pl.col("workload") == "bulk"))
            .select("details")
            .iter_rows()
        ]
        assert reported
        assert reported == [(name, [name])] * len(reported)
    assert set(_LIST.read_text(encoding="ascii").split()) <= set(before)
