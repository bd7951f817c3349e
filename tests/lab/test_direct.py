"""Both ends joined directly: nothing is emulated, offloads are on, and the result says so."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.topology import Topology

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("runs")]

_STUDY = f"""
format = 1
name = "made"
title = "Made"
seed = 3
[precision]
metric = "tcp_goodput_bit_s"
metrics = {{ udp_echo = "rtt_p50_ns" }}
min_repeats = 1
max_repeats = 1
bring_ups = 1
{LOOSE_VALIDITY}
[[tunnel]]
kind = "openvpn"
[[tunnel]]
kind = "vxlan"
[[link]]
kind = "direct"
mtu = 9000
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 100
payload_bytes = 1000
[[workload]]
kind = "tcp_bulk"
duration = "1 s"
"""


def test_a_direct_connection_is_measured_and_says_what_is_not_known(
    study: Callable[[str], Any],
) -> None:
    one = study(_STUDY)
    one.run()
    trials = one.trials()
    assert trials["valid"].all(), trials["reasons"].to_list()
    names = [{c["name"]: c for c in json.loads(checks)} for checks in trials["checks"]]
    assert all("link_direct" in checks for checks in names)
    assert not any("link_alive" in checks or "link_foreign" in checks for checks in names)
    assert trials["wire_forward_bit_s"].null_count() == trials.height
    blocks = [json.loads(path.read_text()) for path in one.directory.glob("blocks/*.json")]
    assert len(blocks) == 2
    for block in blocks:
        proofs = [*block["proofs"], *block["baseline_proofs"], *block["attempts"][0]["end_proofs"]]
        assert {proof["verdict"] for proof in proofs} == {"proved"}


@pytest.mark.parametrize("offloads", [True, False])
def test_offloads_stay_on_only_where_they_may(
    ledger: Ledger, engine: str, *, offloads: bool
) -> None:
    """With them the kernel passes on segments of 64 KiB, as between two cards of a fast line."""
    with Lab(ledger, Topology(), None, engine=engine, offloads=offloads) as lab:
        shown = lab.client_host.run(["ethtool", "-k", "eth0"]).text()
    assert f"tcp-segmentation-offload: {'on' if offloads else 'off'}" in shown
