"""A report says what the lab itself adds to a delay, and which tunnels add no more."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_results import trial_result, write
from tunnelmark.report.floor import floor_notes
from tunnelmark.report.summary import summarise
from tunnelmark.store import open_result

MS = 1e6
FLOOR = {"rtt_p50_ns": 0.2 * MS, "rtt_p99_ns": None, "rtt_p999_ns": None, "packets": 600}


def result(folder: Path, rtts_ms: dict[str, list[float]], floor: object) -> tuple[str, ...]:
    made = [
        replace(
            trial_result(tunnel, 100 * (1 + number), repeat, {"rtt_p50_ns": rtt * MS + repeat}),
            details={"instrument_floor": floor},
        )
        for tunnel, rtts in rtts_ms.items()
        for number, rtt in enumerate(rtts)
        for repeat in (1, 2, 3, 4)
    ]
    return summarise(open_result(write(folder, made))).findings


RTTS = {"none": [2.2, 2.2], "near": [2.3, 2.35], "far": [2.6, 2.7], "both": [2.3, 2.9]}


def test_what_adds_no_more_than_the_lab_is_named(tmp_path: Path) -> None:
    found = result(tmp_path, RTTS, FLOOR)
    assert (
        "The lab itself, without tunnel and link delay, adds 0.2 ms to a round trip (median)."
        in found
    )
    (said,) = (one for one in found if "no more than the lab" in one)
    assert said.startswith("RTT, median: ")
    assert said.endswith(" add no more than the lab itself.")
    assert "near" in said
    assert "both at 1 of 2 points" in said
    assert "far" not in said


def test_without_a_floor_nothing_is_said(tmp_path: Path) -> None:
    found = result(tmp_path, RTTS, None)
    assert not [one for one in found if "lab itself" in one]


def test_a_result_without_trials_has_no_floor(tmp_path: Path) -> None:
    trials = open_result(write(tmp_path, [trial_result("none", 100, 1, {})])).trials()
    assert floor_notes(trials.clear(), ()) == []


@pytest.mark.parametrize("floor", [5, "x", [1], {"rtt_p50_ns": "x"}, {"rtt_p50_ns": [1]}])
def test_what_no_run_of_ours_writes_says_nothing_of_the_lab(tmp_path: Path, floor: object) -> None:
    assert not [one for one in result(tmp_path, RTTS, floor) if "lab itself" in one]
