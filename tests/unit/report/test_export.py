"""Samples in forms of others: nothing lost, nothing invented, missing is not zero."""

import csv
import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from made_results import trial_result, write
from tunnelmark.cli import main
from tunnelmark.engine.records import LATE, MISSING_NS, UNKNOWN_RESIDENCE
from tunnelmark.model.errors import ResultError
from tunnelmark.report.foreign.export import export
from tunnelmark.store import open_result

_MS = 10**6
_READ = {"parquet": pl.read_parquet, "arrow": pl.read_ipc, "csv": pl.read_csv}
_SENT = struct.Struct("<QqqqqIHHII8x")
_REFLECTED = struct.Struct("<QqqIHHI4x")


def _file(kind: int, layout: struct.Struct, records: Sequence[tuple[int, ...]]) -> bytes:
    head = struct.pack("<8sHHIQq32x", b"TMREC\0\0\0", 1, kind, layout.size, len(records), 0)
    return head + b"".join(layout.pack(*record) for record in records)


def _result(folder: Path) -> Path:
    """A trial of four packets, a second apart: back in 40 ms, lost, late, back in 41 ms."""
    start = 5 * 10**9
    sent = [(n, start + n * 10**9, start + n * 10**9 + 1000) for n in range(4)]
    send = [
        (*sent[0], MISSING_NS, sent[0][2] + 41 * _MS, 100, 0, 0, 0, _MS),
        (*sent[1], MISSING_NS, MISSING_NS, 100, 0, 0, 0, UNKNOWN_RESIDENCE),
        (*sent[2], MISSING_NS, sent[2][2] + 900 * _MS, 100, 0, LATE, 0, _MS),
        (*sent[3], MISSING_NS, sent[3][2] + 42 * _MS, 100, 0, 0, 1, _MS),
    ]
    reflect = [(n, 10**9 * n, 10**9 * n + _MS, 100, 0, 0, 0) for n in (0, 2, 3)]
    names = ("t.send", "t.reflect", "t.iperf3-client.json")
    one = trial_result("openvpn", 100, 1, {"rtt_p50_ns": 4.05e7}, samples=names)
    directory = write(folder, [one])
    contents = (_file(1, _SENT, send), _file(2, _REFLECTED, reflect), b'{"start": {}}')
    for name, content in zip(names, contents, strict=True):
        (directory / "samples" / name).write_bytes(content)
    return directory


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_every_packet_is_a_row_and_what_never_was_is_null(tmp_path: Path, form: str) -> None:
    directory, into = _result(tmp_path), tmp_path / "into"
    words = ["export", str(directory), "--samples", form, "--into", str(into)]
    assert main.call(words) == 0
    sent = _READ[form](into / f"t.send.{form}")
    assert sent["seq"].to_list() == [0, 1, 2, 3]
    assert sent["sent_ns"][1] - sent["scheduled_ns"][1] == 1000
    assert sent["returned_ns"].is_null().to_list() == [False, True, False, False]
    assert sent["residence_ns"].to_list() == [_MS, None, _MS, _MS]
    assert sent["late"].to_list() == [False, False, True, False]
    assert sent["size_bytes"].to_list() == [100] * 4
    seen = _READ[form](into / f"t.reflect.{form}")
    assert seen["seq"].to_list() == [0, 2, 3]
    assert (seen["answered_ns"] - seen["received_ns"]).to_list() == [_MS] * 3
    with (into / "index.csv").open() as file:
        index = list(csv.DictReader(file))
    assert [row["file"] for row in index] == [f"t.send.{form}", f"t.reflect.{form}"]
    assert {(row["tunnel"], row["repeat"]) for row in index} == {("openvpn", "1")}


def test_the_reports_of_iperf3_are_as_it_wrote_them(tmp_path: Path) -> None:
    directory = _result(tmp_path)
    done = export(open_result(directory), tmp_path / "into", form=None, iperf3=True)
    assert (done.samples, done.iperf3, done.flent) == (0, 1, 0)
    assert (tmp_path / "into" / "t.iperf3-client.json").read_bytes() == b'{"start": {}}'


def test_flent_gets_each_round_trip_and_no_zero_for_what_was_lost(tmp_path: Path) -> None:
    directory = _result(tmp_path)
    export(open_result(directory), tmp_path / "into", form=None, flent=True)
    (file,) = (tmp_path / "into").glob("*.flent.gz")
    document = json.loads(gzip.decompress(file.read_bytes()))
    assert document["version"] == 4
    assert document["metadata"]["NAME"] == "ping"
    raw = document["raw_values"]["Ping (ms) UDP"]
    assert [value["val"] for value in raw] == [40.0, 41.0]
    assert raw[1]["t"] - raw[0]["t"] == pytest.approx(3.0, abs=1e-3)
    means = document["results"]["Ping (ms) UDP"]
    assert len(means) == len(document["x_values"]) == 16
    assert [mean for mean in means if mean is not None] == [40.0, 41.0]
    assert means[5] is None


def test_exporting_again_writes_the_same_and_leaves_the_result_alone(tmp_path: Path) -> None:
    directory = _result(tmp_path)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    runs = []
    for _ in range(2):
        export(open_result(directory), tmp_path / "into", form="csv", iperf3=True, flent=True)
        runs.append({path: path.read_bytes() for path in (tmp_path / "into").iterdir()})
    assert runs[0] == runs[1]
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["../t", "a/b", "/etc/x", "", "t\0"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    directory = write(tmp_path, [trial_result("none", 100, 1, {}, samples=(name,))])
    with pytest.raises(ResultError, match="is not a file name"):
        export(open_result(directory), tmp_path / "into", form="csv")


@pytest.mark.parametrize("trial_id", ["../../x", "{folder}/x", "t\0"])
@pytest.mark.parametrize("form", ["iperf3", "flent"])
@pytest.mark.parametrize("by", ["store", "export"])
def test_a_trial_whose_name_leads_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial_id: str, form: str, by: str
) -> None:
    directory, into = _result(tmp_path), tmp_path / "a" / "into"
    path = directory / "trials" / "b1.parquet"
    pl.read_parquet(path).with_columns(
        trial_id=pl.lit(trial_id.format(folder=tmp_path)),
        workload_kind=pl.lit("udp_load" if form == "iperf3" else "udp_echo"),
        params=pl.lit('{"rate": "1 Mbit/s"}'),
    ).write_parquet(path)
    if by == "export":
        monkeypatch.setattr("tunnelmark.store.rows.check_values", lambda *_: None)
    words = "trial_id is " if by == "store" else "is not a file name"
    with pytest.raises(ResultError, match=words):
        export(
            open_result(directory), into, form=None, iperf3=form == "iperf3", flent=form == "flent"
        )
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_sample_that_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    directory = _result(tmp_path)
    path = directory / "samples" / "t.send"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ResultError, match=r"t\.send"):
        export(open_result(directory), tmp_path / "into", form="csv")
    path.unlink()
    with pytest.raises(ResultError, match=r"t\.send"):
        export(open_result(directory), tmp_path / "into", form="csv")


def test_without_a_form_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["export", "somewhere", "--into", "elsewhere"]) == 2
    assert "--samples, --iperf3 and --flent" in capsys.readouterr().err
