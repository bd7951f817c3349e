"""What flent and iperf3 read of ours: flent's own loader, iperf3's own report, a strict schema."""

import importlib
import json
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from made_results import trial_result, write
from tunnelmark.cli import main
from tunnelmark.engine.records import MISSING_NS, UNKNOWN_RESIDENCE
from tunnelmark.model.errors import ResultError
from tunnelmark.model.trial import TrialResult
from tunnelmark.report.foreign.export import Exported, export
from tunnelmark.store import open_result

_MS = 10**6
_SENT = struct.Struct("<QqqqqIHHII8x")
_REFLECTED = struct.Struct("<QqqIHHI4x")
# As `iperf3 -c HOST -u -J` of version 3.12 writes them.
_REAL = Path(__file__).parent / "iperf3-udp.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Sum(_Strict):
    start: float
    end: float
    seconds: float
    bytes: int
    bits_per_second: float
    sender: bool


class _Second(_Sum):
    packets: int
    omitted: bool


class _StreamSecond(_Second):
    socket: int


class _Interval(_Strict):
    streams: list[_StreamSecond]
    sum: _Second


class _Total(_Sum):
    jitter_ms: float
    lost_packets: int
    packets: int
    lost_percent: float


class _StreamTotal(_Total):
    socket: int
    out_of_order: int


class _Udp(_Strict):
    udp: _StreamTotal


class _End(_Strict):
    streams: list[_Udp]
    sum: _Total
    sum_sent: _Total
    sum_received: _Total


class _Moment(_Strict):
    time: str
    timesecs: int


class _Test(_Strict):
    protocol: str
    num_streams: int
    blksize: int
    omit: int
    duration: int
    bytes: int
    blocks: int
    reverse: int
    tos: int


class _Start(_Strict):
    connected: list[None]
    version: str
    system_info: str
    timestamp: _Moment
    test_start: _Test


class _Report(_Strict):
    start: _Start
    intervals: list[_Interval]
    end: _End


def _file(kind: int, layout: struct.Struct, records: Sequence[tuple[int, ...]]) -> bytes:
    head = struct.pack("<8sHHIQq32x", b"TMREC\0\0\0", 1, kind, layout.size, len(records), 0)
    return head + b"".join(layout.pack(*record) for record in records)


def _load(*, transit_ms: list[int | None], start_s: int = 5) -> tuple[bytes, bytes]:
    """Return both ends' records of packets of 1250 bytes, one every 10 ms."""
    sent = [(n, start_s * 10**9 + n * 10 * _MS) for n in range(len(transit_ms))]
    send = [(n, at, at, MISSING_NS, MISSING_NS, 1250, 0, 0, 0, UNKNOWN_RESIDENCE) for n, at in sent]
    reflect = [
        (n, at + ms * _MS, MISSING_NS, 1250, 0, 0, 0)
        for (n, at), ms in zip(sent, transit_ms, strict=True)
        if ms is not None
    ]
    return _file(1, _SENT, send), _file(2, _REFLECTED, reflect)


def _echo(start_s: int, rtt_ms: list[int]) -> bytes:
    """Return a sender's records of echoes, one a second."""
    at = [(start_s + n) * 10**9 for n in range(len(rtt_ms))]
    rows = [
        (n, at[n], at[n], MISSING_NS, at[n] + ms * _MS, 64, 0, 0, 0, 0)
        for n, ms in enumerate(rtt_ms)
    ]
    return _file(1, _SENT, rows)


def _report(rates: list[float]) -> bytes:
    seconds = [
        {"streams": [{"start": n, "seconds": 1.0, "bytes": int(rate * 1e6 / 8)}]}
        for n, rate in enumerate(rates)
    ]
    return json.dumps({"start": {"version": "iperf 3.12"}, "intervals": seconds}).encode()


def _trial(kind: str, params: Mapping[str, object], names: tuple[str, ...], n: int) -> TrialResult:
    made = trial_result("openvpn", 100, n, {}, samples=names)
    workload = replace(made.trial.point.workload, kind=kind, label=kind, params=params)
    point = replace(made.trial.point, workload=workload)
    return replace(made, trial=replace(made.trial, point=point))


def _result(folder: Path, *trials: tuple[str, Mapping[str, object], Mapping[str, bytes]]) -> Path:
    made = [
        _trial(kind, params, tuple(samples), number)
        for number, (kind, params, samples) in enumerate(trials, 1)
    ]
    directory = write(folder, made)
    for _, _, samples in trials:
        for name, data in samples.items():
            (directory / "samples" / name).write_bytes(data)
    return directory


def _exported(folder: Path, *trials: Any, **asked: bool) -> Exported:
    directory = _result(folder, *trials)
    return export(open_result(directory), folder / "into", form=None, **asked)


def _both_ways() -> tuple[str, dict[str, object], dict[str, bytes]]:
    forward = _load(transit_ms=[20] * 250)
    reverse = _load(transit_ms=[20, 30, None, 20, 45, 20] + [20] * 244)
    names = ("t-1.send.rec", "t-1.reflect.rec", "t-1-reverse.send.rec", "t-1-reverse.reflect.rec")
    samples = dict(zip(names, (*forward, *reverse), strict=True))
    return "udp_load", {"direction": "both"}, samples


@pytest.fixture
def by_flent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flent's own
        resultset = importlib.import_module("flent.resultset")
    return lambda folder: resultset.load(str(next(folder.glob("*.flent.gz"))))


def test_flent_reads_a_load_both_ways(tmp_path: Path, by_flent: Any) -> None:
    assert _exported(tmp_path, _both_ways(), flent=True).flent == 1
    found = by_flent(tmp_path / "into")
    assert found.meta("NAME") == "udp_flood"
    assert found.series_names == ["UDP upload", "UDP download"]
    # 1250 bytes every 10 ms: 1 Mbit/s in each whole step of 0.2 s.
    assert found["UDP upload"] == pytest.approx([1.0] * 12)
    assert found["UDP download"] == pytest.approx([0.95, *[1.0] * 11])
    assert found.x_values == pytest.approx([n * 0.2 for n in range(12)])
    points = list(found.raw_series("UDP download"))
    assert points[0] == pytest.approx((0.0, 0.95))
    assert found.series_meta("UDP upload", "UNITS") == "Mbits/s"


def test_flent_reads_delays_idle_and_under_load_on_one_axis(tmp_path: Path, by_flent: Any) -> None:
    samples = {"t-1-idle.send.rec": _echo(5, [10, 10]), "t-1-loaded.send.rec": _echo(9, [90, 80])}
    _exported(tmp_path, ("latency_under_load", {}, samples), flent=True)
    found = by_flent(tmp_path / "into")
    assert found.meta("NAME") == "ping"
    points = list(found.raw_series("Ping (ms) UDP"))
    assert [at for at, _ in points] == pytest.approx([0, 1, 4, 5], abs=1e-6)
    assert [ms for _, ms in points] == [10, 10, 90, 80]
    assert found["Ping (ms) UDP"][20] == 90


def test_flent_reads_a_transfer_over_two_tunnels(tmp_path: Path, by_flent: Any) -> None:
    samples = {
        "t-1.iperf3-server-p0-forward.json": _report([8.0, 9.0, 9.0]),
        "t-1.iperf3-client-p0-forward.json": _report([80.0, 9.0, 9.0]),
        "t-1.iperf3-server-p1-forward.json": _report([4.0, 5.0]),
        "t-1.iperf3-client-p0-reverse.json": _report([2.0, 2.0, 3.0]),
    }
    _exported(tmp_path, ("tcp_bulk", {}, samples), flent=True)
    found = by_flent(tmp_path / "into")
    assert found.meta("NAME") == "tcp_bidirectional"
    assert found["TCP upload::p0"] == [8.0, 9.0, 9.0]
    assert found["TCP upload::p1"] == [4.0, 5.0, None]
    assert found["TCP upload sum"] == [12.0, 14.0, None]
    assert found["TCP download"] == [2.0, 2.0, 3.0]
    assert found.x_values == [0, 1, 2]


def test_a_load_is_a_report_of_iperf3(tmp_path: Path) -> None:
    assert _exported(tmp_path, _both_ways(), iperf3=True).iperf3 == 2
    forward, reverse = (
        next((tmp_path / "into").glob(f"*.iperf3-udp-{way}.json")).read_bytes()
        for way in ("forward", "reverse")
    )
    one, other = (_Report.model_validate_json(data) for data in (forward, reverse))
    assert one.start.version.startswith("tunnelmark ")
    assert (one.start.test_start.reverse, other.start.test_start.reverse) == (0, 1)
    assert (one.end.sum.lost_packets, one.end.sum.packets) == (0, 250)
    assert one.end.sum.bits_per_second == pytest.approx(1e6)
    assert one.end.sum.jitter_ms == 0
    assert [second.sum.packets for second in one.intervals] == [100, 100, 50]
    total = other.end.streams[0].udp
    assert (total.lost_packets, total.out_of_order, total.sender) == (1, 1, False)
    assert total.lost_percent == pytest.approx(0.4)
    assert other.end.sum_received.bytes == 249 * 1250
    assert sum(second.sum.bytes for second in other.intervals) == 249 * 1250


def test_jitter_is_that_of_rfc_3550(tmp_path: Path) -> None:
    send, reflect = _load(transit_ms=[20, 30, 20])
    samples = {"t-1.send.rec": send, "t-1.reflect.rec": reflect}
    _exported(tmp_path, ("udp_load", {"direction": "forward"}, samples), iperf3=True)
    (file,) = (tmp_path / "into").glob("*.json")
    # J += (|D| - J) / 16, and |D| is 10 ms twice.
    expected = 10 / 16 + (10 - 10 / 16) / 16
    assert _Report.model_validate_json(file.read_bytes()).end.sum.jitter_ms == pytest.approx(
        expected
    )


def test_every_field_is_one_that_iperf3_writes(tmp_path: Path) -> None:
    _exported(tmp_path, _both_ways(), iperf3=True)
    ours = json.loads(next((tmp_path / "into").glob("*udp-forward.json")).read_text())
    assert _strange(ours, json.loads(_REAL.read_text())) == []


def _strange(ours: object, real: object, place: str = "") -> list[str]:
    """Return the places of what iperf3's own report has not, or as another type."""
    if isinstance(ours, dict) and isinstance(real, dict):
        missing = [f"{place}.{key}" for key in ours if key not in real]
        kept = [key for key in ours if key in real]
        return missing + [p for key in kept for p in _strange(ours[key], real[key], key)]
    if isinstance(ours, list) and isinstance(real, list):
        return [p for one in ours for p in _strange(one, real[0], place)]
    numbers = (int, float)
    alike = type(ours) is type(real) or (isinstance(ours, numbers) and isinstance(real, numbers))
    return [] if alike else [place]


def test_what_has_no_such_form_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    echo = {"t-1.send.rec": _echo(5, [10])}
    trials = [
        ("udp_load", {"direction": "echo"}, echo),
        ("web", {}, {"t-2.log": b"pages"}),
        ("web", {}, {}),
    ]
    directory = _result(tmp_path, *trials)
    words = ["export", str(directory), "--into", str(tmp_path / "into")]
    assert main.call([*words, "--flent"]) == 0
    reported = capsys.readouterr().out
    assert "left out of flent: no form for web (1 trial), web without samples (1 trial)" in reported
    with pytest.raises(ResultError, match=r"nothing to export \(iperf3: no form for udp_load echo"):
        export(open_result(directory), tmp_path / "into", form=None, iperf3=True)


def test_a_damaged_report_of_iperf3_is_named(tmp_path: Path) -> None:
    samples = {"t-1.iperf3-server-p0-forward.json": b"{"}
    with pytest.raises(ResultError, match=r"t-1\.iperf3-server-p0-forward\.json: the report of"):
        _exported(tmp_path, ("tcp_bulk", {}, samples), flent=True)
