"""What ``make chaos`` draws, and that it would see a figure that cannot be."""

import dataclasses
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import chaos
import chaos_faults
import chaos_page
import chaos_run
import chaos_study
import polars as pl
import pytest
from chaos_faults import PHASES, Strike, Struck, draw
from chaos_outcome import Outcome, kept, record
from chaos_run import Run
from chaos_study import HeldUp, Tally

from tunnelmark.hosts.ledger import start_time
from tunnelmark.study import parse_study

_MEASURED: dict[str, Any] = {
    "trial_id": "b-p-1",
    "tunnel": "openvpn",
    "tunnel_kind": "openvpn",
    "valid": True,
    "is_baseline": False,
    "rtt_min_ns": 44.7e6,
    "rtt_p50_ns": 44.8e6,
    "loss_forward_ratio": 0.0,
    "loss_reverse_ratio": 0.05,
    "attempt": 1,
    "started_at": datetime(2026, 11, 27, 12, tzinfo=UTC),
    "duration_s": 2.0,
}
_STARTED_S = _MEASURED["started_at"].timestamp()
_HELD_UP = HeldUp("openvpn", _STARTED_S + 1, _STARTED_S + 5)


def drawn(seed: object) -> Strike:
    return draw(random.Random(str(seed)))  # noqa: S311 - what to break, no secret


def test_a_number_of_a_seed_draws_the_same_again() -> None:
    for number in range(20):
        first, again = (drawn(f"7/{number}") for _ in range(2))
        assert first == again
    assert drawn("7/1") != drawn("8/1")


def test_everything_is_drawn() -> None:
    found = [drawn(number) for number in range(400)]
    assert set(Counter(one.fault for one in found)) == {
        "killed",
        "stopped",
        "starved",
        "disk filled",
        "clock stepped",
    }
    assert {one.phase for one in found} == set(PHASES)
    assert {one.beside for one in found} == {"nothing", "another run", "clean"}
    assert all(1 <= one.lasts_s <= 30 for one in found)
    assert {name for one in found for name in one.tunnels} == set(chaos_study.TUNNELS)
    assert any(one.controller for one in found if one.fault == "starved")


def test_its_study_is_one() -> None:
    study = parse_study(chaos_study.text(("openvpn", "tinc"), 2, 7), "chaos.toml")
    assert [tunnel.kind for tunnel in study.tunnels if tunnel.kind != "none"] == ["openvpn", "tinc"]


@pytest.mark.parametrize(
    ("changes", "of_a_tunnel_that_was_struck"),
    [
        ({"rtt_min_ns": 43.6e6}, True),
        ({"rtt_p50_ns": 95e6}, False),
        ({"rtt_p50_ns": None}, False),
        ({"loss_forward_ratio": 0.02}, False),
        ({"loss_reverse_ratio": 0.3}, False),
        ({"is_baseline": True, "rtt_p50_ns": 70e6}, True),
        ({"tunnel_kind": "ssh_tun", "loss_forward_ratio": 0.02}, False),
    ],
)
def test_a_figure_that_cannot_be_is_seen(
    changes: dict[str, Any], *, of_a_tunnel_that_was_struck: bool
) -> None:
    rows = pl.DataFrame([{**_MEASURED, **changes}])
    wrong = chaos_study.wrong_figures(rows, None)
    assert sum(one.startswith("wrong figure: b-p-1 (openvpn): ") for one in wrong) == 1
    kind = str(rows["tunnel_kind"][0]).partition("_")[0]
    struck = chaos_study.wrong_figures(rows, replace(_HELD_UP, program=kind))
    assert bool(struck) == of_a_tunnel_that_was_struck
    invalid = rows.with_columns(valid=pl.lit(value=False))
    assert chaos_study.wrong_figures(invalid, None) == []


@pytest.mark.parametrize(
    ("held_up", "excused"),
    [
        (_HELD_UP, True),
        (replace(_HELD_UP, program="wireguard-go"), False),
        (replace(_HELD_UP, program="all of it"), True),
        (replace(_HELD_UP, began=_STARTED_S + 3), False),
        (replace(_HELD_UP, began=_STARTED_S - 20, ended=_STARTED_S - 10), True),
        (replace(_HELD_UP, began=_STARTED_S - 90, ended=_STARTED_S - 60), False),
    ],
    ids=["own", "of another", "all", "later", "shortly before", "long before"],
)
def test_only_a_trial_of_the_tunnel_that_was_held_up_is_excused(
    held_up: HeldUp, *, excused: bool
) -> None:
    rows = pl.DataFrame([{**_MEASURED, "loss_reverse_ratio": 0.5}])
    assert bool(chaos_study.wrong_figures(rows, held_up)) != excused


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_a_tunnel_that_was_killed_has_no_right_to_half_its_packets(fault: str) -> None:
    struck = Struck("openvpn", 5, "trials", _STARTED_S, _STARTED_S + 1)
    outcome = Outcome(7, 1, replace(drawn(1), fault=fault), struck)  # type: ignore[arg-type]
    rows = pl.DataFrame([{**_MEASURED, "loss_reverse_ratio": 0.5}])
    wrong = chaos_study.wrong_figures(rows, chaos._held_up(outcome))
    assert bool(wrong) == (fault == "killed")


def test_a_line_that_loses_nothing_is_seen_and_one_that_loses_as_it_must_is_not() -> None:
    for ratio, wrong in ((0.0, 1), (0.05, 0), (12 / 60, 1)):
        rows = pl.DataFrame([{**_MEASURED, "loss_reverse_ratio": ratio}] * 8)
        found = chaos_study.wrong_figures(rows, None)
        assert len(found) == wrong
        assert all("of 480 packets lost" in one for one in found)
    # Of fewer packets it may be chance.
    none = pl.DataFrame([{**_MEASURED, "loss_reverse_ratio": 0.0}] * 4)
    assert chaos_study.wrong_figures(none, None) == []


def test_trials_over_tcp_are_judged_together() -> None:
    cut = {"tunnel_kind": "ssh_tun", "loss_reverse_ratio": 1.0, "rtt_p50_ns": None}
    one = chaos_study.tally(pl.DataFrame([{**_MEASURED, **cut}] * 2), None)
    assert one == Tally(over_tcp=2, cut_short=2)
    assert one.unlikely() == []
    assert sum([one] * 3, Tally(over_tcp=150)).unlikely() == []
    (wrong,) = sum([one] * 8, Tally(over_tcp=134)).unlikely()
    assert wrong == "16 of 150 trials over TCP were cut short"


def test_a_figure_as_it_must_be_is_no_fault() -> None:
    rows = pl.DataFrame([_MEASURED, {**_MEASURED, "is_baseline": True, "rtt_min_ns": 43.65e6}])
    assert chaos_study.wrong_figures(rows, None) == []
    again = {"tunnel_kind": "ssh_tun", "rtt_p50_ns": 400e6, "loss_reverse_ratio": 0.3}
    rows = pl.DataFrame([{**_MEASURED, **again}])
    assert chaos_study.wrong_figures(rows, None) == []


def test_delay_is_a_tunnels_own_only_if_its_program_was_struck() -> None:
    assert Struck("openvpn", 5).tunnel
    assert not Struck("tunnelmark-engi", 5).tunnel
    assert not Struck("the run itself", 5).tunnel
    assert not Struck("the disk").tunnel
    assert not Struck().tunnel
    assert Struck("all of it", 5).tunnel


def test_the_page_counts_and_names_what_was_wrong() -> None:
    strike = replace(drawn(1), fault="stopped", beside="clean", phase="warm")
    fine = Outcome(7, 1, strike, Struck("openvpn", 5), seconds=10, resumes=1)
    lost = "lost tunnel: tinc: no answer"
    wrong = Outcome(
        7, 2, strike, Struck("tincd", 6), faults=[lost], lost_tunnels=[lost], seconds=30
    )
    early = Outcome(7, 3, strike)
    page = chaos_page.page([fine, wrong, early])
    assert "| stopped | 2 | 0 | 0 | 0 | 1 | 1 | 1 |" in page
    assert "Tunnels lost: 1.\n- lost tunnel: tinc: no answer, 1 times" in page
    assert "Runs with a fault: 1.\n- run 7/2: tincd stopped for" in page
    assert "\n1 more had ended before theirs." in page
    assert "Seeds: 7 (2 runs)." in page


def test_a_run_that_was_done_again_counts_once() -> None:
    wrong = Outcome(7, 1, drawn(1), Struck("tincd", 6), faults=["lost tunnel: tinc"])
    fine = Outcome(7, 1, drawn(1), Struck("tincd", 6, "down"), tally=Tally(1200, 60, 2, 1))
    page = chaos_page.page([wrong, fine])
    assert "\n1 runs of two tunnels" in page
    assert "1 had a fault in an earlier version." in page
    assert "Runs with a fault: 0." in page
    assert "1,200 packets of valid trials over UDP 60 did not come back (5.00%); 1 of 2" in page
    assert "| down | 1 |" in page


def test_what_became_of_runs_is_read_as_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "chaos.jsonl"
    assert kept(file) == []
    runs = [Outcome(7, n, drawn(n), Struck("ssh", n), [f"fault {n}"]) for n in range(3)]
    for run in runs:
        record(file, run)
    assert kept(file) == runs


def test_half_a_line_and_lines_of_before_spoil_no_page(tmp_path: Path) -> None:
    file = tmp_path / "chaos.jsonl"
    run = Outcome(7, 1, drawn(1), Struck("ssh", 1))
    old = dataclasses.asdict(run)
    for name in ("tally", "commit", "day"):
        del old[name]
    for name in ("phase", "began", "ended"):
        del old["struck"][name]
    file.write_text(json.dumps(old) + "\n" + json.dumps(old)[:40])
    assert kept(file) == [run]
    record(file, run)
    assert kept(file) == [run, run]


def test_what_a_run_left_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, monkeypatch)
    assert run.leftovers() == []
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    run.events.append({"event": "run_started", "run_id": "tmfffff"})
    (tmp_path / "places").mkdir()
    (tmp_path / "places" / "tmfffff-file").touch()
    with (
        subprocess.Popen(sleep, env=run.environment, stdout=subprocess.PIPE) as of_its_environment,
        subprocess.Popen([*sleep, "/x/tmfffff/work"], stdout=subprocess.PIPE) as of_its_words,
    ):
        for one in (of_its_environment, of_its_words):
            assert one.stdout is not None
            one.stdout.readline()
        found = run.leftovers()
        for one in (of_its_environment, of_its_words):
            one.kill()
    assert sum(one.startswith(f"process {of_its_environment.pid}: ") for one in found) == 1
    assert sum(one.startswith(f"process {of_its_words.pid}: ") for one in found) == 1
    assert f"left {tmp_path / 'places' / 'tmfffff-file'}" in found
    assert len(found) == 3


def test_files_in_a_dead_runs_folders_are_its_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, monkeypatch)
    (run.results / "some.part").touch()
    (run.temporary / "file").touch()
    assert len(run.leftovers()) == 2
    assert run.leftovers(in_results=False) == []


def test_a_second_result_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path, monkeypatch)
    for name in ("one", "two"):
        (run.results / name).mkdir()
        (run.results / name / "manifest.json").touch()
    assert [path.name for path in run.directories] == ["one", "two"]


def test_a_trial_done_twice_and_a_figure_that_changed_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, monkeypatch)
    figures = {name: _MEASURED[name] for name in chaos._REPORTED}
    done = {"event": "trial_done", "trial_id": "b-p-1", "attempt": 1, "valid": True}
    run.events = [{**done, "figures": figures}]
    valid = pl.DataFrame([_MEASURED])
    result = SimpleNamespace(blocks={})
    assert chaos._otherwise_on_disk(run, valid) == []
    assert chaos._done_again(run, cast("Any", result)) == []
    run.events += [{**done, "attempt": 2, "figures": figures}]
    run.events[0]["figures"] = {**figures, "rtt_p50_ns": 1.0}
    assert chaos._otherwise_on_disk(run, valid) == [
        "b-p-1: rtt_p50_ns reported as 1.0, on the disk 44800000.0"
    ]
    assert chaos._done_again(run, cast("Any", result)) == ["measured again: b-p-1"]
    disproved = SimpleNamespace(attempts=[SimpleNamespace(trials=("b-p-1-1",))])
    result.blocks["b"] = disproved
    assert chaos._done_again(run, cast("Any", result)) == []


def test_an_id_that_is_anothers_by_now_is_not_struck() -> None:
    with subprocess.Popen(["sleep", "60"]) as one:
        started = start_time(one.pid)
        assert started is not None
        assert not chaos_faults._signal(one.pid, started + 1, signal.SIGKILL)
        assert one.poll() is None
        assert chaos_faults._signal(one.pid, started, signal.SIGKILL)
    assert not chaos_faults._signal(one.pid, started, signal.SIGKILL)


def test_the_phase_is_the_one_of_the_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, monkeypatch)
    for phase in ("lab", "tunnel"):
        run._lines.put(json.dumps({"event": "block_phase", "phase": phase}))
    run.catch_up()
    assert run.phase == "tunnel"


def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run that is not started, and that looks nowhere but in a folder of the test."""
    monkeypatch.setattr(chaos_run, "_ENDING_S", 0.0)
    monkeypatch.setattr(chaos_run, "_PLACES", (tmp_path / "places",))
    monkeypatch.setattr(chaos_run, "words_of", lambda *_: [])
    folder, runtime = tmp_path / "run", tmp_path / "runtime"
    folder.mkdir()
    runtime.mkdir()
    return Run(folder, runtime, "")
