"""Parameters and packet sizes of PPTP, without a daemon."""

from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Completed
from tunnelmark.model.overhead import datagram, fragmentation_point
from tunnelmark.model.topology import MOST_CLIENTS, gateway_ipv4, inner_ipv4, inner_ipv6
from tunnelmark.model.tunnel import DataPath, Endpoint, Negotiated, Site
from tunnelmark.tunnels.ppp.check import negotiated
from tunnelmark.tunnels.ppp.log import PppReport
from tunnelmark.tunnels.ppp.pppd import PppAccount, PppSetup
from tunnelmark.tunnels.pptp import PptpParams, PptpTunnel, address_lines

AGREED = Negotiated(cipher=None, version="1", implementation="pppd", mtu_bytes=1400, data_path=None)


def model(**params: object) -> PptpTunnel:
    return PptpTunnel(PptpParams.model_validate(params))


@pytest.mark.parametrize(
    ("params", "outer"),
    [
        # 20 IPv4, 12 GRE, 1 protocol, 1028 inside; MPPE 2 and the protocol of 2 that it encrypts.
        ({"mppe": "none"}, 1061),
        ({"mppe": "none", "compression": "deflate"}, 1061),
        ({"mppe": "128-stateless"}, 1065),
        ({"mppe": "40"}, 1065),
    ],
)
def test_sizes_as_they_were_seen(params: dict[str, object], outer: int) -> None:
    wrap = model(**params).encapsulation(AGREED)
    assert datagram(1000, link_mtu_bytes=1500, encapsulation=wrap).outer_packet_bytes == (outer,)
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=wrap) == 1372


@pytest.mark.parametrize(
    ("report", "data_path"),
    [
        (PppReport(), DataPath.USER_SPACE),
        (PppReport(mppe="128-stateless"), DataPath.KERNEL),
        (PppReport(compression="deflate"), DataPath.KERNEL),
    ],
)
def test_what_the_kernel_s_ppp_ciphers_is_no_program_s_work(
    report: PppReport, data_path: DataPath
) -> None:
    host: Any = SimpleNamespace(
        run=lambda argv, **_: Completed(tuple(argv), 0, b"pppd version 2.4.9", b"")
    )
    setup = PppSetup("client", "tmx0c", 1400, PurePosixPath("/w/log"))
    end: Any = SimpleNamespace(host=host, setup=setup)
    agreed = negotiated(end, report, programs=["pptp 1"], carried_by="GRE")
    assert (agreed.implementation, agreed.data_path) == ("pppd", data_path)


def test_a_gateway_s_addresses_are_a_range_whatever_the_number_of_its_clients() -> None:
    assert address_lines([gateway_ipv4(0)]) == ["localip 198.19.0.1", "remoteip 198.19.0.2"]
    most = address_lines([gateway_ipv4(number) for number in range(MOST_CLIENTS)])
    assert most == ["localip 198.19.0.1", "remoteip 198.19.0.2-201"]
    # Each of several tunnels has two addresses of its own, which do not follow each other.
    assert address_lines([inner_ipv4(0), inner_ipv4(1)]) == [
        "localip 198.19.0.1,198.19.0.5",
        "remoteip 198.19.0.2,198.19.0.6",
    ]


def test_each_client_of_a_gateway_calls_from_its_own_host(site: Site, hosts: Any) -> None:
    second = replace(site.client, host=hosts[1], ipv4="198.18.0.3")
    gateway = replace(site, clients=(site.client, second), inner_ipv4=gateway_ipv4)
    driver = model(clients=2)
    ours, theirs = (driver._setup(gateway, side, 1) for side in ("client", "server"))
    assert ours.log.is_relative_to(hosts[1].work_dir)
    assert "198.19.0.3:198.19.0.1" in ours.more
    assert theirs.interface == "tmabcdep1s"


def test_compression_and_encryption_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="compression is bsd with mppe 40: pppd does one"):
        PptpParams.model_validate({"mppe": "40", "compression": "bsd"})
    assert PptpParams.model_validate({"mppe": "none", "compression": "bsd"}).compression == "bsd"


@pytest.mark.parametrize(
    ("params", "features"),
    [
        ({}, ("ppp", "ppp_mppe")),
        ({"mppe": "none"}, ("ppp",)),
        ({"mppe": "none", "compression": "deflate"}, ("ppp", "ppp_deflate")),
        ({"mppe": "none", "compression": "bsd"}, ("ppp", "bsd_comp")),
    ],
)
def test_the_kernel_needs_only_what_is_used(
    params: dict[str, object], features: tuple[str, ...]
) -> None:
    class Nothing:
        name = "nothing"

    assert model(**params).need(Nothing()).kernel == features  # type: ignore[arg-type]


def test_a_nat_that_cannot_follow_its_calls_is_named() -> None:
    site: Any = SimpleNamespace(nat_ipv4="198.18.1.254", nat_helpers=frozenset())
    with pytest.raises(RefusedError, match="the kernel lacks nf_nat_pptp"):
        model().bring_up(site)


@pytest.mark.parametrize(("params", "switched_off"), [({}, False), ({"reorder": False}, True)])
def test_the_client_waits_for_missing_packets_by_default(
    params: dict[str, object], *, switched_off: bool
) -> None:
    end = SimpleNamespace(host=SimpleNamespace(work_dir=PurePosixPath("/w")), ipv4="198.18.0.2")
    site: Any = SimpleNamespace(
        client=end,
        client_of=lambda _number: end,
        server=end,
        prefix="tm0c",
        inner_ipv4=lambda _number: ("198.19.0.1", "198.19.0.2"),
    )
    *_, pty = model(**params)._setup(site, "client", 0).more
    assert ("--nobuffer" in pty.split()) is switched_off


def test_calls_at_the_server_start_the_pppd_of_the_study() -> None:
    files: dict[str, bytes] = {}

    def stop(*_: object, **__: object) -> None:
        raise InterruptedError

    host: Any = SimpleNamespace(
        name="server",
        work_dir=PurePosixPath("/w"),
        has={"pppd": "/opt/own ppp/pppd"}.get,
        put=lambda path, data, **_: files.update({path.name: data}),
        run=lambda argv, **_: Completed(tuple(argv), 0, b"", b""),
        spawn=stop,
    )
    end = Endpoint(host, "198.18.0.2", "fd00::2", "eth0", 1500)
    site = Site(end, end, "tmx", inner_ipv4, inner_ipv6)
    tunnel = model()
    with pytest.raises(InterruptedError):
        tunnel._start_server(site, [PppAccount("a", "b")])
    assert b"exec '/opt/own ppp/pppd' \"$@\" file" in files["pppd-of-a-call"]
