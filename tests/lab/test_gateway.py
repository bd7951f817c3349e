"""A gateway with its clients as a user runs it: figures by client, one server, nothing left."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY

pytestmark = pytest.mark.lab

# How busy this machine is may not decide whether there is a figure at all.
_STUDY = f"""
format = 1
name = "gateway-clients"
title = "Gateway"
seed = 7

[precision]
metric = "paths_fairness_ratio"
relative_half_width = "50 %"
min_repeats = 1
max_repeats = 1
max_invalid = 5

{LOOSE_VALIDITY}
[[tunnel]]
kind = "KIND"
clients = 3

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_load"
payload_bytes = 500
packet_rate = 100
share = "each"
direction = "both"
duration = "2 s"

[[workload]]
kind = "udp_echo"
payload_bytes = 200
gap = "10 ms"
packets = 100
load = "each"
"""


def _pids(namespace: str) -> list[str]:
    done = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.paced
@pytest.mark.parametrize("kind", ["openvpn", "wireguard"])
def test_each_client_has_figures_and_the_gateway_its_cpu(
    study: Callable[[str], Any], kind: str
) -> None:
    one = study(_STUDY.replace("KIND", kind))
    one.run()
    trials = one.trials().filter(pl.col("valid"))
    for tunnel in (pl.col("tunnel").str.starts_with(kind), pl.col("tunnel") == "none 3 clients"):
        loads = trials.filter(tunnel & (pl.col("workload").str.starts_with("udp_load")))
        assert sorted(loads["path"]) == ["0", "1", "2", "total"]
        # 100 packets a second of 4000 bit each way for each, which its own link carries.
        for row in loads.filter(pl.col("path") != "total").iter_rows(named=True):
            assert row["goodput_bit_s"] == pytest.approx(0.4e6, rel=0.25)
            assert row["loss_forward_ratio"] == row["loss_reverse_ratio"] == 0
        (total,) = loads.filter(pl.col("path") == "total").iter_rows(named=True)
        assert total["goodput_bit_s"] == pytest.approx(1.2e6, rel=0.25)
        assert total["paths_fairness_ratio"] == pytest.approx(1, abs=0.01)
        echoes = trials.filter(tunnel & (pl.col("workload").str.starts_with("udp_echo")))
        for row in echoes.iter_rows(named=True):
            assert row["rtt_min_ns"] >= 10_000_000
    own = trials.filter(pl.col("tunnel").str.starts_with(kind) & (pl.col("path") == "total"))
    for row in own.iter_rows(named=True):
        assert 0 < row["cpu_gateway_thread_max_ratio"] <= row["cpu_gateway_ratio"]
        assert row["cpu_gateway_ratio"] < row["cpu_tunnel_ratio"]
    assert one.leftovers() == []


_SHORT = (
    _STUDY[: _STUDY.index("[[tunnel]]")]
    + """
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_load"
payload_bytes = 500
packet_rate = RATE
share = "each"
direction = "forward"
duration = "1 s"
drain = "500 ms"
"""
)


@pytest.mark.paced
def test_gateways_with_a_process_for_each_client_serve_two_alike(
    study: Callable[[str], Any],
) -> None:
    kinds = ("ssh_tun", "ocserv")
    tables = "".join(f'[[tunnel]]\nkind = "{kind}"\nclients = 2\n\n' for kind in kinds)
    one = study(_SHORT.replace("RATE", "100") + tables)
    one.run()
    trials = one.trials().filter(pl.col("valid"))
    for kind in kinds:
        own = trials.filter(pl.col("tunnel").str.starts_with(kind))
        assert sorted(own["path"]) == ["0", "1", "total"]
        for row in own.filter(pl.col("path") != "total").iter_rows(named=True):
            assert row["goodput_bit_s"] == pytest.approx(0.4e6, rel=0.25)
        (total,) = own.filter(pl.col("path") == "total").iter_rows(named=True)
        assert total["paths_fairness_ratio"] == pytest.approx(1, abs=0.01)
        assert 0 < total["cpu_gateway_thread_max_ratio"] <= total["cpu_gateway_ratio"]
        assert total["cpu_gateway_ratio"] < total["cpu_tunnel_ratio"]
    assert one.leftovers() == []


@pytest.mark.timing
def test_two_clients_that_share_a_link_get_half_of_it_each(study: Callable[[str], Any]) -> None:
    # 6.3 Mbit/s of IP packets each, for which links of their own would have room.
    table = '[[tunnel]]\nkind = "ipsec"\nclients = 2\nshared = true\n'
    one = study(_SHORT.replace("RATE", "1500") + table)
    one.run()
    trials = one.trials().filter(pl.col("valid"))
    # Of a packet on the link 500 bytes are payload; ESP in UDP adds 64, padding included.
    for tunnel, packet_bytes in (("ipsec", 592), ("none 2 clients on one link", 528)):
        own = trials.filter(pl.col("tunnel").str.starts_with(tunnel))
        rates = dict(zip(own["path"], own["goodput_bit_s"], strict=True))
        assert rates["total"] == pytest.approx(8e6 * 500 / packet_bytes, rel=0.15)
        for client in ("0", "1"):
            assert rates[client] == pytest.approx(rates["total"] / 2, rel=0.1)
        (total,) = own.filter(pl.col("path") == "total").iter_rows(named=True)
        assert total["paths_fairness_ratio"] == pytest.approx(1, abs=0.01)
        if tunnel == "ipsec":
            assert 0 < total["cpu_gateway_thread_max_ratio"] <= total["cpu_gateway_ratio"]
    (path,) = (one.directory / "blocks").glob("*.json")
    block = json.loads(path.read_text("utf-8"))
    for agreed in (*block["negotiated"], *block["baseline_negotiated"]):
        assert agreed["details"]["clients"] == "2 clients on one link"
    assert one.leftovers() == []


def test_a_killed_run_with_clients_leaves_nothing_after_clean(study: Callable[[str], Any]) -> None:
    one = study(_STUDY.replace("KIND", "openvpn"))
    one.start()
    one.until(lambda event: event["event"] == "trial_done")
    hosts = [f"{one.run_id}-{name}" for name in ("client", "client1", "client2", "server")]
    assert all(_pids(host) for host in hosts)
    one.kill()
    one.command("clean")
    assert one.leftovers() == []
