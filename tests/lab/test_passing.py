"""Delay by place on an emulated link: the link has what was configured, and the parts add up."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

pytestmark = [pytest.mark.lab, pytest.mark.paced]

# How busy this machine is may not decide whether there is a figure at all.
_STUDY = f"""
format = 1
name = "passing"
title = "Passing"
seed = 7

[precision]
metric = "cpu_machine_ratio"
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
max_invalid = 5

[probes]
capture_packets = 2000

[[tunnel]]
kind = "openvpn"

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20 ms"
loss_forward = "5 %"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 200
payload_bytes = 500

[[workload]]
kind = "udp_load"
label = "download"
direction = "reverse"
packet_rate = 100
duration = "2 s"
payload_bytes = 500
"""


def test_the_delay_of_a_tunnel_is_reported_by_place(study: Callable[[str], Any]) -> None:
    one = study(_STUDY)
    one.run()
    trials = one.trials().filter((pl.col("path") == "total") & pl.col("valid"))
    assert set(trials["tunnel"]) == {"none", "openvpn"}
    assert trials["workload"].n_unique() == 2
    for row in trials.iter_rows(named=True):
        outer_bytes = {"none": 528, "openvpn": 580}[row["tunnel"]]
        line_ns = 20e6 + outer_bytes * 8 / 8e6 * 1e9
        # What the server sends is followed as well; there are no replies.
        ways = ("reverse",) if row["workload"] == "download" else ("forward", "reverse")
        for way in ways:
            sender, link, receiver = (
                row[f"delay_{way}_{part}_p50_ns"] for part in ("sender", "link", "receiver")
            )
            # A busy machine hands a frame on late; early it never does. The two clocks that are
            # compared may be microseconds apart.
            assert line_ns - 50_000 < link < line_ns + 5_000_000
            assert sender > -50_000
            assert receiver > -50_000
            # Medians do not add up exactly, but nearly.
            whole = row[f"owd_{way}_p50_ns"]
            assert sender + link + receiver == pytest.approx(whole, rel=0.2)
        assert row["wire_packet_mean_bytes"] == pytest.approx(outer_bytes, rel=0.05)
        assert 1 <= row["wire_packets_per_datagram"] < 1.3
        assert row["wire_fragments_ratio"] == 0
    assert one.leftovers() == []
