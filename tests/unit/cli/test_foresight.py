"""What a study will detect is reported before it runs."""

from pathlib import Path

import pytest
from synthetic import Design, Truth, simulate, write

from tunnelmark.cli import main


def test_a_check_says_what_a_study_sees_and_what_that_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.call(["studies", "check", "quickstart"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "repeats in" in lines[1]
    assert "% in RTT, median" in lines[1]
    assert any("figures scatter as in" in line for line in lines)


def test_an_earlier_result_says_how_much_figures_scatter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for name, scatter in (("calm", 0.001), ("noisy", 0.1)):
        design = Design(min_repeats=8, max_repeats=8, bring_ups=4)
        truth = Truth(repeats=scatter, loss=scatter)
        directory = write(simulate(design, truth, 1), tmp_path / name)
        study = tmp_path / f"{name}.toml"
        study.write_text(design.text, encoding="utf-8")
        assert main.call(["studies", "check", str(study), "--like", str(directory)]) == 0
        out = capsys.readouterr().out
        assert f"scatter as in {directory}" in out
        assert "points in Loss, forward" in out
        seen.append(float(out.partition(" % in RTT, median")[0].rpartition(" ")[2]))
    assert seen[0] == 0.25  # nothing finer is relevant
    assert seen[1] > 10


def test_a_time_that_is_too_short_is_said_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["studies", "check", "modern-2026", "--budget", "1min"]) == 0
    assert "is too short for the study's minimum number of repeats" in capsys.readouterr().out
    assert main.call(["studies", "check", "modern-2026", "--budget", "soon"]) == main.USAGE
    assert "must be a quantity such as" in capsys.readouterr().err
