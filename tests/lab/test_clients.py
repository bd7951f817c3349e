"""Several clients at once: each has a tunnel and figures of its own, and its share of the link."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

pytestmark = [pytest.mark.lab, pytest.mark.paced]

# How busy this machine is may not decide whether there is a figure at all.
_STUDY = f"""
format = 1
name = "clients"
title = "Clients"
seed = 7

[precision]
metric = "paths_fairness_ratio"
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
max_invalid = 5

{LOOSE_VALIDITY}
[[tunnel]]
kind = "openvpn"
count = 4

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_load"
payload_bytes = 500
packet_rate = 400
share = "spread"
direction = "both"
duration = "2 s"
"""


def test_four_clients_have_a_quarter_each(study: Callable[[str], Any]) -> None:
    one = study(_STUDY)
    one.run()
    trials = one.trials().filter(pl.col("valid"))
    own = trials.filter(pl.col("tunnel").str.starts_with("openvpn"))
    assert sorted(own["path"]) == ["0", "1", "2", "3", "total"]
    (total,) = own.filter(pl.col("path") == "total").iter_rows(named=True)
    # 400 packets a second of 4000 bit each way, which the link carries: nobody loses any.
    assert total["goodput_bit_s"] == pytest.approx(1.6e6, rel=0.25)
    assert total["loss_forward_ratio"] == total["loss_reverse_ratio"] == 0
    assert total["paths_fairness_ratio"] == pytest.approx(1, abs=0.01)
    for row in own.filter(pl.col("path") != "total").iter_rows(named=True):
        assert row["goodput_bit_s"] == pytest.approx(0.4e6, rel=0.25)
    details = json.loads(total["details"])
    for way in ("forward", "reverse"):
        sent = [flow["sent"] for flow in details[way]["send"]["flows"]]
        assert sent == [200] * 4
    assert one.leftovers() == []
