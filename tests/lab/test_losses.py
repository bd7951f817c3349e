"""Packets lost in a queue and on the line are each found where they were lost."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import NetnsHost
from tunnelmark.lab.lab import Lab
from tunnelmark.model.topology import Topology

pytestmark = [pytest.mark.lab, pytest.mark.paced]

# How busy this machine is may not decide whether there is a figure at all.
_STUDY = """
format = 1
name = "places"
title = "Places"
seed = 7

[precision]
metric = "cpu_machine_ratio"
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
max_invalid = 5

[validity]
sender_lateness = "50 ms"
link_lateness = "100 ms"
starvation = "100 %"
steal = "100 %"
measuring_cpu = "100 %"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "2 ms"
loss_forward = "3 %"

[[workload]]
kind = "udp_load"
payload_bytes = 1000
throughput = "9.6 Mbit/s"
duration = "3 s"
"""


def test_every_lost_packet_has_its_place(study: Callable[[str], Any]) -> None:
    one = study(_STUDY)
    one.run()
    (row,) = (
        one.trials().filter((pl.col("path") == "total") & pl.col("valid")).iter_rows(named=True)
    )
    losses = json.loads(row["details"])["losses"]["forward"]
    places = losses["places"]
    assert sum(places.values()) == losses["lost"]
    assert losses["lost"] == pytest.approx(row["loss_forward_ratio"] * 3600, abs=1)
    # 3600 packets; the line takes 973 a second of them and its queue 64 KiB more.
    assert places["link_queue"] == pytest.approx(3600 - 3 * 973 - 64, abs=100)
    assert places["link_line"] == pytest.approx(0.03 * 2980, abs=4 * (0.03 * 2980) ** 0.5)
    assert places["sender_socket"] == places["sender_queue"] == 0
    # Nothing is lost in this machine unless it is busy; then a counter there has it too.
    assert places["unknown"] == 0
    shares = [value for name, value in row.items() if name.startswith("lost_forward_")]
    assert sum(shares) == pytest.approx(row["loss_forward_ratio"], abs=1e-6)
    assert one.leftovers() == []


def test_damaged_packets_are_lost_at_the_receiver_and_no_fault_of_ours(
    study: Callable[[str], Any],
) -> None:
    damaging = _STUDY.replace('loss_forward = "3 %"', 'corrupt = "10 %"')
    one = study(damaging.replace('throughput = "9.6 Mbit/s"', 'throughput = "2 Mbit/s"'))
    one.run()
    (row,) = (
        one.trials().filter((pl.col("path") == "total") & pl.col("valid")).iter_rows(named=True)
    )
    losses = json.loads(row["details"])["losses"]["forward"]
    # 750 packets; a damaged one fails its checksum, unless the bit is of no consequence.
    assert losses["places"]["receiver"] == pytest.approx(75, abs=4 * 75**0.5)
    assert losses["places"]["receiver"] == losses["lost"]
    assert row["receiver_overrun_ratio"] == 0
    assert one.leftovers() == []


@pytest.mark.parametrize("asked", [None, 1 << 20])
def test_memory_for_fragments_is_the_kernels_own_or_what_the_study_says(asked: int | None) -> None:
    """A default of ours would flatter whatever fragments at a saturated link."""
    with Ledger() as ledger, Lab(ledger, Topology(reassembly_bytes=asked), None, engine="") as lab:
        bare = NetnsHost(ledger, f"{ledger.run_id}-bare")
        try:
            own, *found = (
                host.run(["sysctl", "-n", "net.ipv4.ipfrag_high_thresh"]).text().strip()
                for host in (bare, lab.client_host, lab.server_host)
            )
        finally:
            bare.remove()
    assert found == [own if asked is None else str(asked)] * 2
