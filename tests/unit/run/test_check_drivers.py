"""What is found out before anything is made: tunnels that no router lets through."""

from typing import Any

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.run.block import check_drivers
from tunnelmark.study import parse_study
from tunnelmark.tunnels.registry import tunnel_kinds

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
        ("gre", "nat", "GRE (not encrypted) does not pass a router with NAT"),
        ("pptp", "nat", "PPTP does not pass a router with NAT"),
        ("macsec", "routed", "MACsec does not pass a router"),
    ],
)
def test_a_tunnel_that_passes_no_router_is_left_out(tunnel: str, router: str, reason: str) -> None:
    class Nowhere:
        def check_device(self, *_: object) -> None:
            """Every device can be had."""

    placement: Any = Nowhere()
    study = parse_study(STUDY.format(tunnel=tunnel, router=router), "a.toml")
    with pytest.raises(LabError) as caught:
        check_drivers(study, placement)
    assert str(caught.value) == f"no tunnel of the study can run here; {tunnel}: {reason}"


def test_every_tunnel_runs_without_a_router() -> None:
    for driver in tunnel_kinds().values():
        assert "none" in driver.routers
        assert set(driver.routers) <= {"none", "routed", "nat"}
