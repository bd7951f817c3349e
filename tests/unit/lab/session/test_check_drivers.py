"""What is found out before anything is made: tunnels that no router lets through."""

from typing import Any

import pytest

from tunnelmark.lab.session.check import check_jobs
from tunnelmark.model.errors import LabError
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.tcp_bulk import TcpBulk

STUDY = """
format = 1
name = "routers"
title = "routers"

[topology]
router = "{router}"

[[tunnel]]
kind = "{tunnel}"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "20 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 20
payload_bytes = 512
"""


@pytest.mark.parametrize(
    ("tunnel", "router", "reason"),
    [
        ("vxlan", "nat", "VXLAN (not encrypted) cannot pass a router with NAT"),
        ("macsec", "routed", "MACsec cannot pass a router"),
    ],
)
def test_a_tunnel_that_passes_no_router_is_left_out(tunnel: str, router: str, reason: str) -> None:
    class Nowhere:
        def check_device(self, *_: object) -> None:
            """Every device can be had."""

    placement: Any = Nowhere()
    study = parse_study(STUDY.format(tunnel=tunnel, router=router), "a.toml")
    with pytest.raises(LabError) as caught:
        check_jobs(jobs(study), placement)
    assert str(caught.value) == f"no tunnel of the study can run here; {tunnel}: {reason}"


def test_every_tunnel_runs_without_a_router() -> None:
    for driver in tunnel_kinds().values():
        assert "none" in driver.routers
        assert set(driver.routers) <= {"none", "routed", "nat"}


class Machine:
    """A place that is not a namespace of this computer."""

    def __init__(self, no_gateway: str | None = None) -> None:
        self.no_gateway = no_gateway

    def gateway_problem(self, *_: object) -> str | None:
        """What the place says of gateways."""
        return self.no_gateway

    def check_device(self, *_: object) -> None:
        """Every device can be had."""

    def choose(self, *_: object) -> None:
        """It runs inside."""

    def hosts(self, _label: str) -> tuple[object, ...]:
        return (object(),)


def test_a_gateway_with_clients_is_left_out_where_they_cannot_stand() -> None:
    placement: Any = Machine("each has a machine of its own")
    text = STUDY.replace('"{tunnel}"', '"openvpn"\nclients = 2').format(router="none")
    with pytest.raises(LabError) as caught:
        check_jobs(jobs(parse_study(text, "a.toml")), placement)
    assert str(caught.value).endswith("openvpn-2: each has a machine of its own")
    # One without clients runs there, and with them where they can stand.
    alone = jobs(parse_study(STUDY.format(router="none", tunnel="openvpn"), "a.toml"))
    assert check_jobs(alone, placement)[0] == {}
    able: Any = Machine()
    assert check_jobs(jobs(parse_study(text, "a.toml")), able)[0] == {}


@pytest.mark.parametrize(
    ("workload", "tunnel"),
    [
        ('kind = "handshake"\n', "openvpn"),
        ('kind = "client_joins"\njoining = 1\n', 'openvpn"\nclients = 2\nlabel = "openvpn'),
    ],
)
def test_a_set_up_is_not_timed_in_a_machine(workload: str, tunnel: str) -> None:
    placement: Any = Machine()
    text = STUDY.format(router="none", tunnel=tunnel)
    echo = 'kind = "udp_echo"\ngap = "10 ms"\npackets = 20\npayload_bytes = 512\n'
    assert echo in text
    text = text.replace(echo, f'{workload}\n[precision]\nmetric = "setup_p50_ns"\n')
    with pytest.raises(LabError) as caught:
        check_jobs(jobs(parse_study(text, "a.toml")), placement)
    assert "openvpn: the set-up of a tunnel is timed in network namespaces" in str(caught.value)


BULK = """
[precision]
metric = "tcp_goodput_bit_s"
[[background]]
kind = "tcp_bulk"
{load}
[[workload]]
kind = "tcp_bulk"
{own}
"""


def bulk(load: str = "", own: str = "") -> Any:
    text, _, _ = STUDY.format(router="none", tunnel="openvpn").partition("[[workload]]")
    return jobs(parse_study(text + BULK.format(load=load, own=own), "a.toml"))


def test_a_workload_and_its_load_that_want_two_congestion_controls_are_refused() -> None:
    placement: Any = Machine()
    with pytest.raises(LabError, match=r"workload tcp_bulk: .*different.*\(cubic, reno\)"):
        check_jobs(bulk('congestion = "cubic"', 'congestion = "reno"'), placement)


def test_a_load_of_the_same_label_does_not_stand_for_the_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(self: TcpBulk, _host: object) -> str | None:
        return "the kernel has no vegas" if self.params.congestion == "vegas" else None

    monkeypatch.setattr(TcpBulk, "unavailable", unavailable)
    placement: Any = Machine()
    with pytest.raises(LabError, match="workload tcp_bulk: the kernel has no vegas"):
        check_jobs(bulk(own='congestion = "vegas"'), placement)
    with pytest.raises(LabError, match="background tcp_bulk: the kernel has no vegas"):
        check_jobs(bulk('congestion = "vegas"'), placement)
    assert check_jobs(bulk(), placement)[0] == {}
