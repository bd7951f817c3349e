"""What cannot be behind NAT, by what drivers say of themselves."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import Any

import pytest

from tunnelmark.hosts.inventory import HostEntry
from tunnelmark.lab.hosts_nat import tunnel_problem, workload_problem
from tunnelmark.lab.hosts_placement import HostsPlacement
from tunnelmark.lab.line_ends import Ends, LineEnd
from tunnelmark.lab.session.check import check_jobs
from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds


def ends(*, behind: str) -> Ends:
    def end(role: str) -> LineEnd:
        entry = HostEntry(ssh=role, address="192.0.2.1/24")
        own = "10.0.0.1/24" if role == behind else "192.0.2.1/24"
        return LineEnd(entry, ip_interface(own), ip_address("192.0.2.1"))

    return {"client": end("client"), "server": end("server")}


def tunnel(kind: str, **params: Any) -> Tunnel:
    return make(tunnel_kinds(), DriverSpec(kind, kind, params))


@pytest.mark.parametrize("kind", sorted(tunnel_kinds()))
def test_a_server_behind_nat_is_reached_at_ports_or_refused(kind: str) -> None:
    if kind == "recipe":
        pytest.skip("needs a text")
    driver = tunnel(kind)
    ports, problem = driver.forwarded(), tunnel_problem(driver, ends(behind="server"))
    assert (ports is None) == (problem is not None)
    # What no NAT lets through at the client, no forwarding brings to the server.
    if ports is not None:
        assert tunnel_problem(driver, ends(behind="client")) is None
    assert tunnel_problem(driver, ends(behind="nobody")) is None


@pytest.mark.parametrize("kind", ["gre", "vxlan", "pptp", "l2tp_ipsec", "sing_box", "macsec"])
def test_what_needs_both_addresses_is_refused_at_either_end(kind: str) -> None:
    for behind in ("client", "server"):
        assert tunnel_problem(tunnel(kind), ends(behind=behind))


@pytest.mark.parametrize("kind", ["ipsec", "ikev2"])
def test_esp_passes_nat_only_inside_udp(kind: str) -> None:
    for behind in ("client", "server"):
        bare = tunnel_problem(tunnel(kind), ends(behind=behind))
        assert bare == "ESP passes NAT only inside UDP (udp_encapsulation = true)"
        inside = tunnel(kind, udp_encapsulation=True)
        assert tunnel_problem(inside, ends(behind=behind)) is None
    assert [str(ports) for ports in inside.forwarded() or ()] == ["UDP 500", "UDP 4500"]


@pytest.mark.parametrize(
    ("kind", "params", "fits"),
    [
        (
            "udp_load",
            {"throughput": "1 Mbit/s", "payload_bytes": 100, "direction": "forward"},
            True,
        ),
        ("udp_load", {"throughput": "1 Mbit/s", "payload_bytes": 100, "direction": "both"}, False),
        ("voip", {"calls": 1}, False),
        # Its client connects, whichever way the data goes.
        ("tcp_bulk", {"duration": "5 s", "direction": "reverse"}, True),
    ],
)
def test_a_server_that_sends_first_does_not_pass_the_client_s_nat(
    kind: str, params: dict[str, Any], *, fits: bool
) -> None:
    workload = make(workload_kinds(), DriverSpec(kind, kind, params))
    assert (workload_problem(workload, ends(behind="client")) is None) == fits
    assert workload_problem(workload, ends(behind="server")) is None


STUDY = """
format = 1
name = "nat"
title = "NAT"
precision = { metric = "loss_forward_ratio" }
[[tunnel]]
kind = "openvpn"
[[tunnel]]
kind = "vxlan"
[[link]]
kind = "direct"
[[workload]]
kind = "udp_load"
direction = "both"
throughput = "1 Mbit/s"
payload_bytes = 200
"""


def placed(behind: str, monkeypatch: pytest.MonkeyPatch) -> HostsPlacement:
    """Return hosts that have everything, one of them behind NAT."""
    placement = object.__new__(HostsPlacement)
    monkeypatch.setattr(placement, "_found_ends", lambda: ends(behind=behind), raising=False)
    monkeypatch.setattr(placement, "choose", lambda _label, _ask: None, raising=False)
    monkeypatch.setattr(placement, "hosts", lambda _label: (), raising=False)
    return placement


def test_a_run_leaves_out_what_cannot_be_behind_nat(monkeypatch: pytest.MonkeyPatch) -> None:
    found = jobs(parse_study(STUDY, "nat.toml"))
    skipped, _ = check_jobs(found, placed("server", monkeypatch))
    assert set(skipped) == {"vxlan"}
    with pytest.raises(LabError, match="workload udp_load: its server sends first"):
        check_jobs(found, placed("client", monkeypatch))


def test_what_stays_on_one_line_is_refused_between_hosts_that_are_routed() -> None:
    apart = {
        role: replace(end, entry=end.entry.model_copy(update={"attach": "routed"}))
        for role, end in ends(behind="nobody").items()
    }
    assert tunnel_problem(tunnel("macsec"), ends(behind="nobody")) is None
    assert tunnel_problem(tunnel("macsec"), apart) == "MACsec cannot pass a router"
    assert "transport mode" in str(tunnel_problem(tunnel("ipsec", mode="transport"), apart))
    assert tunnel_problem(tunnel("wireguard"), apart) is None
