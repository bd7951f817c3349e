"""Clients that join a gateway while others carry traffic, with the programs that users have."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

# None of the clients that stay may lose a packet, so nothing may keep the gateway waiting.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.paced]

_ROUND_TRIP_NS = 20_000_000
_STUDY = f"""
format = 1
name = "joins"
title = "Joins"
seed = 7

[precision]
metric = "setup_p50_ns"
metrics = {{ udp_echo = "rtt_p50_ns" }}
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
bring_ups = 1
max_invalid = 5

{LOOSE_VALIDITY}
[[tunnel]]
kind = "KIND"
clients = 4

[[link]]
kind = "serial"
rate = "20 Mbit/s"
delay = "10 ms"

[[workload]]
kind = "client_joins"
joining = 2
gap = "2 s"
before = "1 s"
packet_gap = "5 ms"

[[workload]]
kind = "udp_echo"
payload_bytes = 200
gap = "10 ms"
packets = 20
load = "each"
"""
# The round trips that no implementation can do without, as in test_handshake.py.
CASES = [("openvpn", 4), ("wireguard", 2), ("ssh_tun", 6), ("ipsec", 3), ("ikev2", 3)]


@pytest.mark.parametrize(("kind", "round_trips"), CASES)
def test_two_of_four_clients_join_again_and_all_are_there_behind_it(
    study: Callable[[str], Any], kind: str, round_trips: int
) -> None:
    one = study(_STUDY.replace("KIND", kind))
    one.run()
    trials = one.trials()
    assert trials["valid"].all(), trials["details"].to_list()
    own = trials.filter(pl.col("workload").str.starts_with("client_joins"))
    assert own["path"].to_list() == ["total"] * 2
    (bare,) = own.filter(pl.col("tunnel").str.starts_with("none")).iter_rows(named=True)
    (row,) = own.filter(~pl.col("tunnel").str.starts_with("none")).iter_rows(named=True)
    assert row["setup_p50_ns"] >= round_trips * _ROUND_TRIP_NS
    assert bare["setup_p50_ns"] >= _ROUND_TRIP_NS
    for figures in (row, bare):
        assert figures["setup_failed_ratio"] == 0
        assert len(json.loads(figures["details"])["set_ups"]) == 2
        # A client every 2 s at most.
        assert 0 < figures["joins_s"] <= 2 / 2
        assert figures["before_rtt_p99_ns"] >= figures["before_rtt_p50_ns"] >= _ROUND_TRIP_NS
        assert figures["joining_rtt_p99_ns"] >= figures["joining_rtt_p50_ns"] >= _ROUND_TRIP_NS
        # The clients that stay lose nothing when others join.
        assert figures["loss_forward_ratio"] == figures["loss_reverse_ratio"] == 0
        assert figures["cpu_tunnel_ratio"] is None
    # All four again, in a trial of their own.
    echoes = trials.filter(pl.col("workload").str.starts_with("udp_echo"))
    assert sorted(echoes["path"].unique()) == ["0", "1", "2", "3", "total"]
    assert set(echoes["loss_forward_ratio"]) == {0}
    assert one.leftovers() == []
