"""Parameters and packet sizes of PPTP, without a daemon."""

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Completed
from tunnelmark.model.overhead import datagram, fragmentation_point
from tunnelmark.model.tunnel import DataPath, Negotiated
from tunnelmark.tunnels.ppp import PppSetup
from tunnelmark.tunnels.ppp_check import negotiated
from tunnelmark.tunnels.ppp_log import PppReport
from tunnelmark.tunnels.pptp import PptpParams, PptpTunnel

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
        server=end,
        prefix="tm0c",
        inner_ipv4=lambda _number: ("198.19.0.1", "198.19.0.2"),
    )
    *_, pty = model(**params)._setup(site, "client", 0).more
    assert ("--nobuffer" in pty.split()) is switched_off
