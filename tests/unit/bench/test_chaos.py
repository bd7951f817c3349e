"""What ``make chaos`` draws, and that it would see a figure that cannot be."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import chaos_page
import chaos_study
import polars as pl
import pytest
from chaos_faults import PHASES, Strike, Struck, draw
from chaos_outcome import Outcome, kept, record

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
}


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
    assert len(chaos_study.wrong_figures(rows, tunnel_struck=False)) == 1
    struck = chaos_study.wrong_figures(rows, tunnel_struck=True)
    assert bool(struck) == of_a_tunnel_that_was_struck
    invalid = rows.with_columns(valid=pl.lit(value=False))
    assert chaos_study.wrong_figures(invalid, tunnel_struck=False) == []


def test_a_figure_as_it_must_be_is_no_fault() -> None:
    rows = pl.DataFrame([_MEASURED, {**_MEASURED, "is_baseline": True, "rtt_min_ns": 43.65e6}])
    assert chaos_study.wrong_figures(rows, tunnel_struck=False) == []
    again = {"tunnel_kind": "ssh_tun", "rtt_p50_ns": 400e6, "loss_reverse_ratio": 0.3}
    rows = pl.DataFrame([{**_MEASURED, **again}])
    assert chaos_study.wrong_figures(rows, tunnel_struck=False) == []


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


def test_what_became_of_runs_is_read_as_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "chaos.jsonl"
    assert kept(file) == []
    runs = [Outcome(7, n, drawn(n), Struck("ssh", n), [f"fault {n}"]) for n in range(3)]
    for run in runs:
        record(file, run)
    assert kept(file) == runs
