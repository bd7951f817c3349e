"""Loads beside a workload in virtual time: from the study to the figures of the report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from made_simulated import OF_THE_RUN, simulated
from tunnelmark.cli import main
from tunnelmark.sim.host import Line
from tunnelmark.store import Result

pytestmark = pytest.mark.usefixtures("engine")

MS = 1_000_000
HEAD = """\
format = 1
name = "made"
title = "Made"
seed = 7
[precision]
metric = "background_bit_s"
min_repeats = 1
max_repeats = 1
bring_ups = 1
[[tunnel]]
kind = "wireguard"
label = "wireguard"
[[link]]
kind = "serial"
label = "line"
rate = "8 Mbit/s"
delay = "5 ms"
queue = "20 KiB"
"""
UNDER_LOAD = """
[[workload]]
kind = "latency_under_load"
idle = "1 s"
settle = "1 s"
loaded = "3 s"
"""
ECHO = '[[workload]]\nkind = "udp_echo"\ngap = "10 ms"\npackets = 300\npayload_bytes = 72\n'
FLOOD = '[[background]]\nkind = "udp_load"\nlabel = "flood"\npayload_bytes = 1000\n'
DOWN = '[[background]]\nkind = "tcp_bulk"\nlabel = "down"\n'


def run(tmp_path: Path, *parts: str, name: str = "results", head: str = HEAD) -> Result:
    return simulated(tmp_path, head + "\n".join(parts), name=name)


def rows(result: Result, tunnel: str | None = None) -> list[dict[str, Any]]:
    total = result.trials().filter(pl.col("path") == "total")
    if tunnel is not None:
        total = total.filter(pl.col("tunnel") == tunnel)
    return list(total.iter_rows(named=True))


def loads(row: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(row["details"])["background"]
    assert isinstance(found, dict)
    return found


def test_a_flood_adds_the_queue_that_it_fills(tmp_path: Path) -> None:
    # The study of tests/lab/test_background.py: 20 KiB of an 8 Mbit/s line are 20.48 ms.
    result = run(tmp_path, FLOOD + 'throughput = "12 Mbit/s"\n', UNDER_LOAD)
    queue_ns = 20 * 1024 * 8 / 8e6 * 1e9
    for row in rows(result, "none"):
        assert row["load_added_forward_ns"] == pytest.approx(queue_ns, rel=0.07)
        assert row["load_added_reverse_ns"] == 0
        assert row["idle_rtt_p50_ns"] == pytest.approx(10 * MS + 2 * 92_000, rel=0.01)
        assert row["background_bit_s"] == pytest.approx(8e6 * 1000 / 1028, rel=0.03)
        # A second ahead, another to settle, and three with the echo: the load's default is 10 s.
        (reported,) = loads(row)["flood"]["runs"]
        assert loads(row)["flood"]["measuring_s"] == pytest.approx(5, abs=0.1)
        (total, *_) = reported["metrics"]
        assert total["loss_forward_ratio"] == pytest.approx(1 - 8 / 12.224, abs=0.01)


def test_half_the_rate_in_step_with_the_echo_is_waited_for_to_the_nanosecond(
    tmp_path: Path,
) -> None:
    # 972 bytes and headers take 1 ms of each 2; the echo is due when one of them is.
    load = FLOOD.replace("1000", "972") + 'packet_rate = 500\nduration = "60 s"\n'
    result = run(tmp_path, load, ECHO + 'background = ["none", "flood"]\n')
    for row in rows(result, "none"):
        alone = 10 * MS + 2 * 100_000
        beside = row["workload"].endswith("flood")
        assert row["rtt_p50_ns"] in ({alone, alone + MS} if beside else {alone})
        if beside:
            assert row["background_packet_s"] == pytest.approx(500, rel=0.01)
            assert row["wire_forward_bit_s"] == pytest.approx(4e6 + 8e4, rel=0.02)
            assert loads(row)["flood"]["runs"][0]["metrics"][0]["loss_forward_ratio"] == 0


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_transfer_with_a_fixed_window_holds_it_in_the_queue(
    tmp_path: Path, direction: str
) -> None:
    # 40 segments of 1500 bytes, 60 ms of the line, of which 10 ms are no queue.
    load = f'{DOWN}direction = "{direction}"\nwindow = "{40 * 1448} byte"\nduration = "30 s"\n'
    deep = HEAD.replace("20 KiB", "200 KiB")
    result = run(tmp_path, load, UNDER_LOAD, head=deep)
    other = {"forward": "reverse", "reverse": "forward"}[direction]
    for row in rows(result, "none"):
        assert row["loaded_rtt_p50_ns"] == pytest.approx(60 * MS, rel=0.03)
        # Its acknowledgements have 52 bytes.
        assert row[f"load_added_{other}_ns"] < 100_000
        assert row["background_bit_s"] == pytest.approx(8e6 * 1448 / 1500, rel=0.03)
        (reported,) = loads(row)["down"]["runs"]
        assert reported["metrics"][0]["tcp_goodput_bit_s"] == row["background_bit_s"]
    for row in rows(result, "wireguard"):
        # The same over the tunnel, where a segment has 1368 bytes and its packet 1480.
        assert row["background_bit_s"] == pytest.approx(8e6 * 1368 / 1480, rel=0.03)


def test_loads_are_begun_again_share_the_line_and_are_the_same_every_time(tmp_path: Path) -> None:
    parts = (
        FLOOD + 'throughput = "1 Mbit/s"\nduration = "400 ms"\ndrain = "500 ms"\n',
        '[[background]]\nkind = "bursts"\nlabel = "office"\npacket_rate = 200\n',
        DOWN + 'duration = "1 s"\nparallel = 3\ndirection = "both"\n',
        '[[background]]\nkind = "web"\nlabel = "pages"\nsmall = 5\nlarge = 0\n',
        '[[background]]\nkind = "file_transfer"\nlabel = "files"\nsize = "200 kB"\n',
        '[[background]]\nkind = "request_response"\nlabel = "asks"\n',
        '[[background]]\nkind = "voip"\nlabel = "call"\npath = "outside"\n',
        ECHO,
    )
    result = run(tmp_path, *parts)
    again = run(tmp_path, *parts, name="again")
    tables = [one.trials().drop(OF_THE_RUN).sort("trial_id", "path") for one in (result, again)]
    assert tables[0].equals(tables[1])
    for row in rows(result):
        found = loads(row)
        assert set(found) == {"flood", "office", "down", "pages", "files", "asks", "call"}
        for name, one in found.items():
            assert one["payload_bytes"] > 0, name
        # 400 ms and the wait of 500 ms behind them, in 1 s ahead, 3 s of the echo, and the wait for
        # what of it was lost.
        assert len(found["flood"]["runs"]) in {5, 6}
        assert len(found["down"]["runs"]) in {4, 5}
        # A run that was ended has figures too, of as long as it lasted.
        assert 3.7 < found["down"]["measuring_s"] < 5
        assert row["background_bit_s"] < 2 * 8e6
        assert row["rtt_p50_ns"] > 10 * MS
        # The wire had it all, each way at most what it carries.
        assert row["wire_reverse_bit_s"] < 8e6 * 1.1


def test_a_load_has_the_congestion_control_that_the_workload_names(tmp_path: Path) -> None:
    search = HEAD.replace('"background_bit_s"', '"tcp_goodput_bit_s"')
    measured = '[[workload]]\nkind = "tcp_bulk"\nduration = "4 s"\n'
    for name, ours, of_load in (
        ("reno", 'congestion = "reno"\n', ""),
        ("too", "", 'congestion = "reno"\n'),
    ):
        result = run(tmp_path, DOWN + of_load, measured + ours, head=search, name=name)
        notes = [note for block in result.blocks.values() for note in block.notes]
        assert notes, "what is modelled of TCP"
        assert not any("names no congestion control" in note for note in notes)


def test_what_is_outside_passes_no_tunnel(tmp_path: Path) -> None:
    load = FLOOD + 'throughput = "2 Mbit/s"\nduration = "60 s"\npath = '
    inside, outside = (
        rows(run(tmp_path, f'{load}"{path}"\n', ECHO, name=path), "wireguard")
        for path in ("inside", "outside")
    )
    for one, other in zip(inside, outside, strict=True):
        # WireGuard has 60 bytes outside and fills up to 16: 1028 become 1100.
        packets_s = 2e6 / 8000
        added = one["wire_forward_bit_s"] - other["wire_forward_bit_s"]
        assert added == pytest.approx(packets_s * 8 * 72, rel=0.05)
        assert one["background_bit_s"] == other["background_bit_s"]
        # The link carried both, so both are the payload that its bytes are compared with.
        assert 0 < other["overhead_ratio"] < one["overhead_ratio"] < 0.5


def test_a_search_has_its_loads_beside_each_of_its_trials(tmp_path: Path) -> None:
    load = FLOOD + 'throughput = "4 Mbit/s"\n'
    search = """
[[workload]]
kind = "rate_search"
payload_bytes = 972
loss = "0.5 %"
"""
    both = search + 'background = ["none", "flood"]\n'
    result = run(tmp_path, load, both)
    bounds = {
        row["workload"].endswith("flood"): row["throughput_lower_packet_s"]
        for row in rows(result, "none")
    }
    # 1000 packets a second of 1000 bytes, less what 4 Mbit/s of payload take of the line.
    assert bounds[False] == pytest.approx(1000, rel=0.05)
    assert bounds[True] == pytest.approx(1000 - 514, rel=0.1)


def test_a_trial_of_a_search_ends_once_its_losses_decide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = '[[workload]]\nkind = "rate_search"\npayload_bytes = 972\ntrial = "40 s"\n'
    early = rows(run(tmp_path, search, name="early"))
    monkeypatch.setattr(Line, "end_when_lost", lambda *_: None)
    whole = rows(run(tmp_path, search, name="whole"))
    for one, other in zip(early, whole, strict=True):
        for bound in ("throughput_lower_packet_s", "throughput_upper_packet_s"):
            assert one[bound] == pytest.approx(other[bound], rel=0.02)
        sent_s, whole_s = (json.loads(row["details"])["measuring_s"] for row in (one, other))
        # A rate just too high takes a while until the queue is full.
        assert sent_s < 0.9 * whole_s
        # As a lab would need.
        assert one["search_s"] > sent_s
        assert other["search_s"] == pytest.approx(whole_s, rel=0.05)


def test_a_load_that_sends_nothing_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunnelmark.workloads.udp_load import UdpLoad  # noqa: PLC0415 - it is replaced here

    good = UdpLoad.run

    def empty(self: UdpLoad, context: Any) -> Any:
        return good(self, replace(context, paths=()))

    monkeypatch.setattr(UdpLoad, "run", empty)
    study = tmp_path / "made.toml"
    study.write_text(HEAD + FLOOD + "packet_rate = 100\n" + ECHO, encoding="utf-8")
    words = ["run", str(study), "--backend", "sim", "--results", str(tmp_path / "r"), "--quiet"]
    assert main.call(words) != 0


def test_transactions_over_udp_run_beside_a_workload_and_end_with_it(tmp_path: Path) -> None:
    load = """
[[background]]
kind = "request_response"
label = "asking"
transport = "udp"
response_bytes = "972 B"
duration = "100 s"
"""
    result = run(tmp_path, load, ECHO + 'background = ["none", "asking"]\n')
    for row in rows(result, "none"):
        assert row["valid"]
        asked = row["workload"].endswith("asking")
        assert (row["background_bit_s"] or 0) > 0 if asked else row["background_bit_s"] is None
