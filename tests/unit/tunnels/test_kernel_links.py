"""Parameters and sizes of the tunnels that are nothing but an interface of the kernel."""

from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.cli import overhead_model
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.host import Completed
from tunnelmark.model.topology import inner_ipv4, inner_ipv6
from tunnelmark.model.tunnel import Endpoint, Site
from tunnelmark.tunnels.gre import GreParams
from tunnelmark.tunnels.kernel_link import KernelLinkTunnel
from tunnelmark.tunnels.macsec import MacsecTunnel
from tunnelmark.tunnels.registry import tunnel_kinds


@pytest.mark.parametrize(
    ("kind", "settings", "overhead", "point"),
    [
        # IPv4 20 and UDP 8 inside are part of the overhead of a payload.
        ("gre", [], 24 + 28, 1448),
        ("gre", ["keyed=true"], 28 + 28, 1444),
        ("vxlan", [], 50 + 28, 1422),
        ("macsec", [], 32 + 28, 1440),
        ("macsec", ["cipher=GCM-AES-256", "encrypt=false"], 32 + 28, 1440),
    ],
)
def test_sizes_as_they_were_seen(kind: str, settings: list[str], overhead: int, point: int) -> None:
    wire, found, inner_mtu, _ = overhead_model.model(kind, 1000, 1500, settings)
    assert wire.overhead_bytes == overhead
    assert found == point
    assert inner_mtu == point + 28


def test_several_gre_tunnels_need_keys() -> None:
    with pytest.raises(ValidationError, match="count is 2: between two addresses there is one GRE"):
        GreParams.model_validate({"count": 2})
    assert GreParams.model_validate({"count": 2, "keyed": True}).count == 2


class Recorder:
    """A host whose programs all end well and say nothing; it keeps what they were given."""

    name = "client"

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], bytes]] = []

    def run(self, argv: list[str], *, stdin: bytes = b"", **_: Any) -> Completed:
        self.calls.append((argv, stdin))
        shown = b'[{"address": "02:00:00:00:00:aa"}]' if argv[:3] == ["ip", "-j", "link"] else b"[]"
        return Completed(tuple(argv), 0, shown, b"")


def site(host: Any) -> Site:
    ends = [
        Endpoint(host, f"198.18.0.{number}", f"fd00::{number}", "eth0", 1500) for number in (1, 2)
    ]
    return Site(ends[0], ends[1], "tmx", inner_ipv4, inner_ipv6)


def test_keys_go_by_standard_input_and_are_new_for_each_direction() -> None:
    host: Any = Recorder()
    tunnel = MacsecTunnel(MacsecTunnel.params_type.model_validate({"cipher": "GCM-AES-256"}))
    with pytest.raises(TunnelError, match="the kernel shows nothing"):
        tunnel.up(site(host))
    batches = [stdin.decode() for argv, stdin in host.calls if argv[:2] == ["ip", "-batch"]]
    assert len(batches) == 2
    # The address that the interface has, which on a real host is not the lab's.
    assert all("rx address 02:00:00:00:00:aa port 1" in batch for batch in batches)
    keys = [line.split()[-1] for batch in batches for line in batch.splitlines() if " key " in line]
    assert len(keys) == 4
    assert len({*keys}) == 2  # what one end sends with is what the other receives with
    assert all(len(bytes.fromhex(key)) == 32 for key in keys)
    assert not any(key in word for key in keys for argv, _ in host.calls for word in argv)


@pytest.mark.parametrize("kind", ["gre", "vxlan", "macsec"])
def test_an_mtu_that_does_not_fit_is_refused_with_what_does(kind: str) -> None:
    driver: Any = tunnel_kinds()[kind]
    assert issubclass(driver, KernelLinkTunnel)
    tunnel = driver(driver.params_type.model_validate({"mtu_bytes": 1500}))
    room = tunnel.default_mtu_bytes(1500, "kernel")
    with pytest.raises(
        TunnelError, match=rf"{kind}: mtu_bytes is 1500, a link of 1500 bytes leaves {room}"
    ):
        tunnel.up(site(Recorder()))
    assert tunnel.problem() is None
