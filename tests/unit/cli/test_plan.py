"""The jobs of a study, for people, for scripts and for programs."""

import json
from pathlib import Path

import pytest

from made_study import made_text
from tunnelmark.cli import main
from tunnelmark.model.job import from_json
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs

_TEXT = made_text("", tunnels=['label = "a"', 'label = "b"\nmtu_bytes = 1400'])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "study.toml"
    path.write_text(_TEXT, encoding="utf-8")
    return str(path)


def test_each_job_whole_with_its_expected_time(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(["plan", file, "--json", "--seed", "9"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [from_json(json.dumps(row["job"]).encode()) for row in rows]
    planned = jobs(parse_study(_TEXT, "study.toml"))
    assert [job.block for job in found] == [job.block for job in planned]
    assert {job.seed for job in found} == {9}
    assert [row["job_id"] for row in rows] == [job.job_id for job in planned]
    assert all(0 < row["expected_least_s"] <= row["expected_most_s"] for row in rows)


def test_the_names_alone_for_a_script(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["plan", file, "--ids"]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert ids == [job.job_id for job in jobs(parse_study(_TEXT, "study.toml"))]
    assert main.call(["plan", file, "--ids", "--json"]) == 2


def test_a_table_for_people(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["plan", file]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert "  a  serial-8mbit/s  host  4 points, about " in first
    assert "  b  " in second
    assert total.startswith("2 jobs, about ")


def test_a_job_that_is_none_is_reported_before_anything_is_made(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", file, "--job", "b0000000", "--results", str(tmp_path / "results")]
    assert main.call([*words, "--place", "machine"]) == 2
    assert "has no job 'b0000000'; tunnelmark plan lists its 2 jobs" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
