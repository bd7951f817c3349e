"""``tunnelmark compare``, from two directories to the screen."""

import json
from pathlib import Path

import pytest

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
    assert lines[-1].startswith("1 of 1 changes are clear")


def test_changes_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = made(tmp_path / "a", 8e6), made(tmp_path / "b", 8e6)
    assert main.call(["compare", one, other, "--json", "--metric", "goodput_bit_s"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changes"][0]["clear"] is False
    assert document["environment"] == []


def test_unlike_runs_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = made(tmp_path / "a", 8e6), made(tmp_path / "b", 9e6, study="other")
    assert main.call(["compare", one, other]) == main.USAGE
    assert "the study is made there and other here" in capsys.readouterr().err
    assert main.call(["compare", one, other, "--force"]) == 0
    assert "not alike: the study" in capsys.readouterr().out


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
    assert "nothing to tell: too few points or repeats" in out
    assert main.call(["analyse", directory, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {
        "drift",
        "curves",
        "correlations",
        "factorial",
    }
