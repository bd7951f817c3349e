"""What the main job must show: theory, an independent capture, loss by direction."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_HEAD = """
format = 1
name = "shown"
title = "Shown"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "50 %"
min_repeats = {repeats}
max_repeats = {repeats}
max_invalid = 20
{validity}{tunnels}
[[link]]
kind = "serial"
rate = "{rate}"
delay = "20.5 ms"
{link}

[[workload]]
kind = "udp_echo"
{workload}
"""


def _text(workload: str, *, repeats: int = 2, rate: str = "8 Mbit/s", **tables: str) -> str:
    more = {"tunnels": "", "link": "", "validity": "", **tables}
    return _HEAD.format(workload=workload, repeats=repeats, rate=rate, **more)


def _trials(study: Any) -> pl.DataFrame:
    frame = pl.concat(
        [pl.read_parquet(path) for path in study.directory.glob("trials/*.parquet")],
        how="diagonal_relaxed",
    )
    return frame.filter((pl.col("path") == "total") & pl.col("valid"))


def _blocks(study: Any) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in study.directory.glob("blocks/*.json")]


def test_without_a_tunnel_the_fragmentation_point_is_1472(study: Callable[[str], Any]) -> None:
    workload = 'gap = "10 ms"\npackets = 20\npayload_bytes = [1472, 1473]'
    one = study(_text(workload, validity=LOOSE_VALIDITY))
    one.run()
    (block,) = _blocks(one)
    (proof,) = block["proofs"]
    assert proof["fragmentation_point_bytes"] == 1472
    trials = _trials(one)
    assert set(trials.filter(pl.col("param_payload_bytes") == 1472)["outer_packets"]) == {1.0}
    assert set(trials.filter(pl.col("param_payload_bytes") == 1473)["outer_packets"]) == {2.0}


@pytest.mark.timing
def test_a_saturated_8_mbit_s_link_carries_what_theory_says(study: Callable[[str], Any]) -> None:
    # 1472 bytes every 1 ms are 11.8 Mbit/s, more than the link carries.
    workload = 'gap = "1 ms"\nduration = "3 s"\npayload_bytes = 1472'
    # A packet that leaves late only waits less: there is always one in the queue.
    one = study(_text(workload, validity=LOOSE_VALIDITY))
    one.run()
    theory = 8e6 * 1472 / 1500
    for goodput in _trials(one)["goodput_bit_s"]:
        assert goodput == pytest.approx(theory, rel=0.01)


@pytest.mark.timing
def test_rtt_and_serialization_delay_at_low_load(study: Callable[[str], Any]) -> None:
    workload = 'gap = "10 ms"\npackets = 150\npayload_bytes = [25, 1000, 1472]'
    # A slow line: 1 % of a packet's time is more than a busy computer adds. Of 450 packets one that
    # nothing held up is enough.
    one = study(_text(workload, rate="2 Mbit/s", repeats=3, validity=LOOSE_VALIDITY))
    one.run()
    trials = _trials(one)
    smallest = {
        size: min(trials.filter(pl.col("param_payload_bytes") == size)["rtt_min_ns"].to_list())
        for size in (25, 1000, 1472)
    }
    for size, rtt_ns in smallest.items():
        theory_ns = 41e6 + 2 * (size + 28) * 8 / 2e6 * 1e9
        assert rtt_ns == pytest.approx(theory_ns, rel=0.01)
    # There and back: twice the difference of the serialization of 1500 and of 53 bytes, so the
    # share of one 1500-byte packet (6 ms) comes out of the difference.
    difference_ns = (smallest[1472] - smallest[25]) / 2
    assert difference_ns * 1500 / (1500 - 53) == pytest.approx(6e6, rel=0.01)


def test_forward_loss_of_2_percent_is_measured_forward_only(study: Callable[[str], Any]) -> None:
    one = study(
        _text(
            'gap = "1 ms"\npackets = 4000\npayload_bytes = 100',
            link='loss_forward = "2 %"',
            repeats=3,
            validity=LOOSE_VALIDITY,
        )
    )
    one.run()
    trials = _trials(one)
    losses = trials["loss_forward_ratio"].to_list()
    # 12,000 packets: four standard errors of a share of 2 % are 0.51 points.
    assert sum(losses) / len(losses) == pytest.approx(0.02, abs=0.0051)
    assert set(trials["loss_reverse_ratio"]) == {0.0}


@pytest.mark.parametrize(
    "tunnel",
    [
        'kind = "openvpn"\ncipher = "AES-256-GCM"',
        'kind = "openvpn"\ncipher = "AES-256-CBC"',
        'kind = "openvpn"\ncipher = "CHACHA20-POLY1305"',
        'kind = "openvpn"\ncipher = "AES-128-CBC"',
        'kind = "openvpn"\ncipher = "BF-CBC"',
        'kind = "wireguard"',
    ],
    ids=["aes-256-gcm", "aes-256-cbc", "chacha20", "aes-128-cbc", "bf-cbc", "wireguard"],
)
def test_overhead_equals_an_independent_capture(
    study: Callable[[str], Any], tmp_path: Path, tunnel: str
) -> None:
    one = study(
        _text(
            'gap = "10 ms"\npackets = 150\npayload_bytes = [700, 1472]',
            tunnels=f"\n[[tunnel]]\n{tunnel}\n",
            repeats=1,
            validity=LOOSE_VALIDITY,
        )
    )
    one.start()
    log = tmp_path / "tcpdump.log"
    label = one.until(lambda e: e["event"] == "block_phase" and e["phase"] == "trials")["tunnel"]
    # tcpdump at the far end of the link, read as text: nothing of ours takes part in it.
    with log.open("w") as output:
        tcpdump = subprocess.Popen(
            ["ip", "netns", "exec", f"{one.run_id}-link", "tcpdump", "-i", "b", "-n", "-v", "-l"],
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert one.finish() == 0, one.errors
        finally:
            tcpdump.terminate()
            tcpdump.wait()
    lengths = Counter(int(n) for n in re.findall(r"\blength (\d+)\)", log.read_text()))
    assert lengths, "tcpdump saw nothing"
    (block,) = _blocks(one)
    assert block["tunnel"] == label
    for proofs in (block["proofs"], block["baseline_proofs"]):
        seen = {one["payload_bytes"]: one["outer_packet_bytes"] for one in proofs[0]["samples"]}
        for size in (700, 1472):
            for length in seen[size]:
                # The answers to 150 packets: what the emulator sends out of "b" passes the
                # interface's queueing discipline by, and with it every capture there.
                assert lengths[length] >= 140, (size, seen, lengths)
    for row in _trials(one).iter_rows(named=True):
        assert row["overhead_bytes"] is not None
