"""The distribution of the round trip: of packets that are answered, whatever else a study sent."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from made_results import trial_result, write
from tunnelmark.engine import records
from tunnelmark.model.lateness import LATE_TAIL
from tunnelmark.model.trial import TrialResult
from tunnelmark.model.validity import Check
from tunnelmark.report.charts import Chart
from tunnelmark.report.html import charts_of
from tunnelmark.report.summary import summarise
from tunnelmark.store import open_result

_RTT_NS = 2_000_000
_HEAD = struct.Struct("<8sHHIQq32x")


def sent(answered: Sequence[bool]) -> bytes:
    """Return a sender's records: a packet every millisecond, and which of them were answered."""
    table = np.zeros(len(answered), records._SEND)
    table["sent_ns"] = np.arange(1, len(answered) + 1) * 1_000_000
    table["returned_ns"] = np.where(answered, table["sent_ns"] + _RTT_NS, records.MISSING_NS)
    return _HEAD.pack(b"TMREC\0\0\0", 1, 1, table.dtype.itemsize, len(table), 0) + table.tobytes()


def trial(tunnel: str, workload: str, repeat: int) -> TrialResult:
    made = trial_result(tunnel, 100, repeat, {"rtt_p50_ns": float(_RTT_NS)})
    spec = replace(made.trial.point.workload, kind=workload.split(maxsplit=1)[0], label=workload)
    point = replace(made.trial.point, point_id=f"{tunnel}{repeat}", workload=spec)
    name = f"{tunnel}-{repeat}.send.rec"
    return replace(made, trial=replace(made.trial, point=point), samples=(name,))


def drawn(
    folder: Path,
    *sampled: tuple[str, str, Sequence[bool]],
    more: Mapping[int, Check] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the last share of each tunnel's curve; ``more`` are further checks by trial."""
    trials = [
        trial(tunnel, workload, number) for number, (tunnel, workload, _) in enumerate(sampled)
    ]
    for number, check in more.items():
        made = trials[number]
        trials[number] = replace(made, validity=made.validity.plus([check]))
    directory = write(folder, trials)
    for made, (_, _, answered) in zip(trials, sampled, strict=True):
        (directory / "samples" / made.samples[0]).write_bytes(sent(answered))
    result = open_result(directory)
    found = {}
    for chart in charts_of(summarise(result), result):
        if chart.key.endswith("distribution"):
            assert isinstance(chart, Chart)
            found.update({line.name: float(line.dots[-1].value or 0) for line in chart.lines})
    return found


def test_packets_that_nobody_answers_are_not_lost(tmp_path: Path) -> None:
    ends = drawn(
        tmp_path,
        ("none", "udp_echo 64", [True] * 100),
        ("none", "udp_load 9 Mbit/s", [False] * 100),
    )
    assert ends == {"none": 1.0}


def test_an_echo_that_a_tunnel_loses_altogether_is_lost(tmp_path: Path) -> None:
    ends = drawn(
        tmp_path,
        ("none", "udp_echo 64", [True] * 100),
        ("none", "udp_echo 1472", [True] * 100),
        ("none", "udp_load 9 Mbit/s", [False] * 100),
        ("openvpn", "udp_echo 64", [True] * 90 + [False] * 10),
        ("openvpn", "udp_echo 1472", [False] * 100),
        ("openvpn", "udp_load 9 Mbit/s", [False] * 100),
    )
    assert ends == {"none": 1.0, "openvpn": 0.45}


def test_delays_that_are_the_instruments_are_in_no_distribution(tmp_path: Path) -> None:
    late = Check(f"{LATE_TAIL}sender_lateness", ok=True, message="")
    sampled = (
        ("none", "udp_echo 64", [True] * 100),
        ("openvpn", "udp_echo 64", [True] * 90 + [False] * 10),
        ("openvpn", "udp_echo 64", [True] * 100),
    )
    assert drawn(tmp_path / "all", *sampled) == {"none": 1.0, "openvpn": 0.95}
    assert drawn(tmp_path / "late", *sampled, more={2: late}) == {"none": 1.0, "openvpn": 0.9}


def test_nothing_is_drawn_where_nothing_is_answered(tmp_path: Path) -> None:
    assert drawn(tmp_path, ("none", "udp_load 9 Mbit/s", [False] * 10)) == {}
