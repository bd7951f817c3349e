"""Background on an emulated link: what it adds to the delay is the queue that it fills."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timing]

# 150 % of what the link carries keep the queue full: 20 KiB of an 8 Mbit/s line are 20.48 ms.
# How busy this machine is may not decide whether there is a figure at all.
_STUDY = """
format = 1
name = "beside"
title = "Beside"
seed = 7

[precision]
metric = "background_bit_s"
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
max_invalid = 20

[validity]
sender_lateness = "50 ms"
link_lateness = "100 ms"
starvation = "100 %"
steal = "100 %"
measuring_cpu = "100 %"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"
queue = "20 KiB"

[[background]]
kind = "udp_load"
label = "flood"
payload_bytes = 1000
throughput = "12 Mbit/s"

[[workload]]
kind = "latency_under_load"
idle = "1 s"
settle = "1 s"
loaded = "3 s"
"""


def test_a_flood_adds_the_queue_that_it_fills(study: Callable[[str], Any]) -> None:
    one = study(_STUDY)
    one.run()
    trials = one.trials().filter((pl.col("path") == "total") & pl.col("valid"))
    (row,) = trials.iter_rows(named=True)
    queue_ns = 20 * 1024 * 8 / 8e6 * 1e9
    # The packet in service may come on top, a queue without room for one more be short of one: 5 %.
    assert row["load_added_forward_ns"] == pytest.approx(queue_ns, rel=0.15)
    # The way back is empty: what is left there is the noise of this machine.
    assert abs(row["load_added_reverse_ns"]) < queue_ns / 10
    # The link carries what it can, and the flood has nearly all of it.
    assert row["background_bit_s"] == pytest.approx(8e6 * 1000 / 1028, rel=0.03)
    assert one.leftovers() == []
