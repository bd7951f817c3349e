"""``tunnelmark compare``, from two directories to the screen."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Design, Truth, simulate
from synthetic import write as write_made

from made_results import trial_result, write
from tunnelmark.cli import main


def made(folder: Path, goodput: float, **changes: object) -> str:
    results = [
        trial_result("openvpn", 64, repeat, {"goodput_bit_s": goodput * (1 + repeat / 500)})
        for repeat in range(1, 6)
    ]
    return str(write(folder, results, **changes))


def test_the_environment_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = made(tmp_path / "a", 8e6)
    other = made(tmp_path / "b", 9e6, environment={"kernel": "[bold]6.18"})
    assert main.call(["compare", one, other]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Environment"
    assert lines[1].strip() == "kernel: 6.1 -> [bold]6.18"
    assert any("* openvpn, udp_echo 64, 8 Mbit/s" in line for line in lines)
    assert lines[-1] == "1 of 1 figures differ clearly"


def test_a_run_beside_itself_has_no_difference_worth_telling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made(tmp_path / "a", 8e6)
    assert main.call(["compare", one, one]) == 0
    assert capsys.readouterr().out == "no relevant difference\n"
    assert main.call(["compare", one, one, "--all"]) == 0
    assert "openvpn, udp_echo 64" in capsys.readouterr().out


def test_two_runs_of_one_study_have_no_difference_worth_telling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = Truth(bring_ups=0.001, repeats=0.001)
    design = Design(min_repeats=6, max_repeats=6, bring_ups=6)
    one, other = (
        str(write_made(simulate(design, truth, seed), tmp_path / f"{seed}")) for seed in (1, 2)
    )
    assert main.call(["compare", one, other]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no relevant difference")
    slower = replace(truth, effects={("a", "rtt_p50_ns"): 0.2})
    third = str(write_made(simulate(design, slower, 3), tmp_path / "3"))
    assert main.call(["compare", one, third]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line for line in lines if line.startswith("*")]
    assert len(listed) == 3
    assert all("a, udp_echo" in line and "RTT, median" in line for line in listed)
    assert lines[-1].startswith("3 of ")


def test_changes_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = made(tmp_path / "a", 8e6), made(tmp_path / "b", 8e6)
    assert main.call(["compare", one, other, "--json", "--metric", "goodput_bit_s"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changes"][0]["outcome"] == "alike"
    assert document["environment"] == []


def test_unlike_runs_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = made(tmp_path / "a", 8e6), made(tmp_path / "b", 9e6, study="other")
    assert main.call(["compare", one, other]) == main.USAGE
    assert "the study is made in A and other in B" in capsys.readouterr().err
    assert main.call(["compare", one, other, "--force"]) == 0
    assert "not comparable: the study" in capsys.readouterr().out


def test_a_metric_that_is_none_is_answered_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(["compare", str(tmp_path), str(tmp_path), "--metric", "goodput"]) == main.USAGE
    assert "did you mean goodput_bit_s?" in capsys.readouterr().err


def test_analyse_tells_what_there_is_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        trial_result("openvpn", size, repeat, {"goodput_bit_s": min(size, 700) * (1e4 + repeat)})
        for size in (64, 256, 512, 768, 1024, 1280)
        for repeat in range(1, 5)
    ]
    directory = str(write(tmp_path, results))
    assert main.call(["analyse", directory, "--metric", "goodput_bit_s"]) == 0
    out = capsys.readouterr().out
    assert "Goodput over payload_bytes: bends at" in out
    assert "payload_bytes explains" in out
    assert "nothing to report" in out
    assert main.call(["analyse", directory, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {
        "drift",
        "curves",
        "correlations",
        "factorial",
    }
