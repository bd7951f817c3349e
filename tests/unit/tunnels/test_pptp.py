"""Parameters and packet sizes of PPTP, without a daemon."""

import pytest
from pydantic import ValidationError

from tunnelmark.model.overhead import datagram, fragmentation_point
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.tunnels.pptp import PptpParams, PptpTunnel

AGREED = Negotiated(cipher=None, version="1", implementation="pppd", mtu_bytes=1400)


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
