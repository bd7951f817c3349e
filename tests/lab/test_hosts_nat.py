"""Real hosts with NAT between them, known by names, or on a line that carries IPv6."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY
from ssh_hosts import INSIDE, NAT, OWN_IPV6, TwoHosts, two_hosts
from tunnelmark.store import open_result

pytestmark = [
    pytest.mark.xdist_group("runs"),
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces stand for hosts"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server"),
]
STUDY = """\
format = 1
name = "nat"
title = "Two hosts and what is between them"
seed = 7
precision = {{ min_repeats = 1, max_repeats = 1, bring_ups = 1, max_invalid = 5 }}
{loose}
{tunnels}
[[workload]]
kind = "udp_echo"
gap = "5 ms"
payload_bytes = 200
packets = 60
"""
INSIDE_END = {"bind": f'"{INSIDE}/24"', "gateway": '"10.77.0.1"'}
"""What an inventory says of the end behind NAT beside where it is reached."""
OVER_TCP = 'transport = "tcp"'
WIREGUARD_IPV6 = "wireguard-ipv6-ipv6-wireguard-go"
WIREGUARD = 'implementation = "wireguard-go"'


def study_of(*kinds: str, **lines: str) -> str:
    """Return a study of these kinds, each with its lines."""
    tables = (f'[[tunnel]]\nkind = "{kind}"\n{lines.get(kind, "")}' for kind in kinds)
    return STUDY.format(loose=LOOSE_VALIDITY, tunnels="\n".join(tables))


def valid(directory: Path) -> pl.DataFrame:
    trials = open_result(directory).trials()
    return trials.filter(pl.col("path") == "total", pl.col("valid"))


def proved(directory: Path) -> bool:
    """Say whether the captures on the client's side proved every tunnel."""
    blocks = open_result(directory).blocks.values()
    return all(proof.ok for block in blocks for proof in (*block.proofs, *block.baseline_proofs))


@pytest.fixture
def server_inside() -> Iterator[TwoHosts]:
    """The server behind NAT; one port that is named is not forwarded."""
    udp = "{ 7690, 7700-7715, 7790, 51820 }"
    forwards = (f"udp dport {udp}", "tcp dport 7700-7715")
    with two_hosts(behind_nat="server", forwards=forwards) as made:
        made.client.knows(made.folder / "hosts", "vps.example", NAT)
        yield made


@pytest.fixture
def client_inside() -> Iterator[TwoHosts]:
    with two_hosts(behind_nat="client") as made:
        yield made


def ends(role: str, address: str) -> Mapping[str, Mapping[str, str]]:
    return {role: {**INSIDE_END, "address": f'"{address}"'}}


def check(inventory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "tunnelmark.cli", "hosts", "check", str(inventory), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)


def test_the_check_names_and_tries_what_a_nat_must_forward(
    study: Callable[[str], Any], server_inside: TwoHosts
) -> None:
    inventory = server_inside.inventory(ends=ends("server", "vps.example"))
    one = study(
        study_of(
            "wireguard", "openvpn", "vxlan", "yggdrasil", wireguard=WIREGUARD, openvpn=OVER_TCP
        )
    )
    done = check(inventory, str(one.file), "--json")
    report = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in report["line"]["findings"]}
    assert done.returncode == 3
    assert f"{NAT} leads to {INSIDE}" in found["nat"]["message"]
    assert found["forwarding"]["message"].endswith(
        f"must forward to {INSIDE}: UDP 7690, UDP 7700 to 7715, TCP 7700 to 7715, UDP 7790, "
        "UDP 51820, TCP 1194, TCP 9001"
    )
    # VXLAN calls from both ends; the port of OpenVPN is not forwarded over TCP.
    assert [name for name, one in found.items() if not one["ok"]] == [
        "tcp 1194",
        "tcp 9001",
        "vxlan",
        "yggdrasil",
    ]
    assert "cannot have its server behind NAT" in found["vxlan"]["message"]
    assert "has no IPv4 inside" in found["yggdrasil"]["message"]
    assert server_inside.client.leftovers() == server_inside.server.leftovers() == []


def test_a_server_behind_nat_is_measured_by_its_name(
    study: Callable[[str], Any], server_inside: TwoHosts
) -> None:
    inventory = server_inside.inventory(ends=ends("server", "vps.example"))
    one = study(study_of("wireguard", "vxlan", wireguard=WIREGUARD))
    one.run(str(one.file), "--hosts", str(inventory))
    assert set(valid(one.directory)["tunnel"]) == {"none", "wireguard-wireguard-go"}
    assert proved(one.directory)
    manifest = open_result(one.directory).manifest
    assert set(manifest.skipped) == {"vxlan"}
    assert "cannot have its server behind NAT" in manifest.skipped["vxlan"]
    reported = manifest.environment["server address"]
    assert reported == f"vps.example is {NAT}, behind NAT at {INSIDE}/24"


def test_a_client_behind_nat_is_measured(
    study: Callable[[str], Any], client_inside: TwoHosts
) -> None:
    inventory = client_inside.inventory(ends=ends("client", NAT))
    one = study(study_of("openvpn", "ipsec", openvpn=OVER_TCP))
    one.run(str(one.file), "--hosts", str(inventory))
    assert set(valid(one.directory)["tunnel"]) == {"none", "openvpn-tcp"}
    assert proved(one.directory)
    assert "udp_encapsulation" in open_result(one.directory).manifest.skipped["ipsec"]


def test_a_line_of_ipv6_carries_tunnels_and_what_is_beside_them(
    study: Callable[[str], Any],
) -> None:
    both = 'inner = "ipv6"\nouter = "ipv6"'
    with two_hosts() as hosts:
        hosts.address_ipv6()
        inventory = hosts.inventory(
            ends={role: {"address": f'"{own}/64"'} for role, own in OWN_IPV6.items()}
        )
        one = study(
            study_of("openvpn", "wireguard", openvpn=both, wireguard=f"{both}\n{WIREGUARD}")
        )
        one.run(str(one.file), "--hosts", str(inventory))
    table = valid(one.directory)
    assert proved(one.directory)
    overhead = dict(zip(table["tunnel"], table["overhead_bytes"], strict=True))
    assert set(overhead) == {"none IPv6", "openvpn-ipv6-ipv6", WIREGUARD_IPV6}
    # Outer IPv6 and UDP 48, data header 16, tag 16, what fills 248 bytes up to a multiple of 16.
    assert overhead[WIREGUARD_IPV6] - overhead["none IPv6"] == 48 + 32 + 8
