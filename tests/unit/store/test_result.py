"""Result directories: what is written is read, and what is damaged is refused."""

import json
from pathlib import Path

import polars as pl
import pytest

from made_results import block_record, manifest, trial_result, write
from tunnelmark.model.errors import ResultError
from tunnelmark.store import Writer, open_result
from tunnelmark.store.manifest import read_manifest


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = [
        trial_result("openvpn", 1000, 1, {"goodput_bit_s": 1e6, "rtt_p50_ns": None}),
        trial_result("none", 1000, 1, {"goodput_bit_s": 2e6}, valid=False),
    ]
    result = open_result(write(tmp_path, results))
    trials = result.trials()
    assert trials.height == 2
    tunnel = trials.filter(~pl.col("is_baseline")).row(0, named=True)
    assert tunnel["goodput_bit_s"] == 1e6
    assert tunnel["rtt_p50_ns"] is None
    assert tunnel["param_payload_bytes"] == 1000
    baseline = trials.filter(pl.col("is_baseline")).row(0, named=True)
    assert baseline["reasons"] == ["made <b>so</b>"]
    assert baseline["pair_id"] == tunnel["pair_id"]
    assert result.blocks["b1"] == block_record()


def test_an_attempt_without_figures_has_its_row(tmp_path: Path) -> None:
    one = trial_result("openvpn", 1000, 1, {}, valid=False)
    trials = open_result(write(tmp_path, [one])).trials()
    assert trials.height == 1
    assert trials["goodput_bit_s"].to_list() == [None]


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    first = Writer.create(tmp_path / "result", manifest())
    with pytest.raises(ResultError, match="another run is writing it"):
        Writer(tmp_path / "result")
    first.close()
    Writer(tmp_path / "result").close()


def test_a_newer_format_is_refused_and_an_older_one_converted(tmp_path: Path) -> None:
    directory = write(tmp_path, [])
    raw = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**raw, "format": 99}))
    with pytest.raises(ResultError, match="has format 99"):
        open_result(directory)
    old = {key: value for key, value in raw.items() if key != "title"} | {"format": 0, "name": "X"}
    (directory / "manifest.json").write_text(json.dumps(old))
    converters = {0: lambda was: {"title": was.pop("name"), **was, "format": 1}}
    assert read_manifest(directory, converters=converters).title == "X"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"{"),
        ("manifest.json", b"[]"),
        ("manifest.json", b'{"format": 1}'),
        ("blocks/b1.json", b'{"block_id": 1}'),
        ("blocks/b1.json", b"\xff"),
        ("trials/b1.parquet", b"PAR1"),
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    directory = write(tmp_path, [trial_result("none", 1, 1, {})])
    (directory / name).write_bytes(content)
    with pytest.raises(ResultError, match=name.replace(".", r"\.")):
        open_result(directory).trials()


def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    result = open_result(write(tmp_path, []))
    with pytest.raises(ResultError, match="leads out"):
        result.samples("../../../etc/passwd")


def test_no_result_directory(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="is no result directory"):
        open_result(tmp_path)
