"""Sizes of ESP, shared by every tunnel that uses it (RFC 4303, RFC 3948)."""

from dataclasses import dataclass
from typing import Final, Literal

from tunnelmark.model.overhead import (
    IP_HEADER_BYTES,
    Encapsulation,
    IpVersion,
    Layer,
    ip_layer,
    padding,
)


@dataclass(frozen=True)
class EspSuite:
    """A cipher and an integrity algorithm, by what they cost."""

    name: str
    iv_bytes: int
    block_bytes: int
    """Payload, padding and trailer fill a multiple of this, at least 4 (RFC 4303 section 2.4)."""
    icv_bytes: int
    source: str


_ALL: Final = (
    EspSuite("3DES-SHA1", 8, 8, 12, "RFC 2451, RFC 2404"),
    EspSuite("AES-128-CBC-SHA1", 16, 16, 12, "RFC 3602, RFC 2404"),
    EspSuite("AES-256-CBC-SHA256", 16, 16, 16, "RFC 3602, RFC 4868"),
    EspSuite("AES-128-GCM", 8, 4, 16, "RFC 4106"),
    EspSuite("AES-256-GCM", 8, 4, 16, "RFC 4106"),
    EspSuite("CHACHA20-POLY1305", 8, 4, 16, "RFC 7634"),
    EspSuite("NULL-SHA1", 0, 4, 12, "RFC 2410, RFC 2404"),
)

ESP_SUITES: Final = {suite.name: suite for suite in _ALL}
"""Suites by name."""


def esp(
    suite: EspSuite,
    *,
    mode: Literal["transport", "tunnel"],
    inner_mtu_bytes: int,
    udp_encapsulation: bool = False,
    outer_ip: IpVersion = 4,
    cut_before: bool = False,
    aggfrag: bool = False,
) -> Encapsulation:
    """Return how ESP wraps a packet (tunnel mode) or the payload of one (transport mode).

    ``cut_before``: what is too long is laid out in pieces before ESP, and these go over the link.
    Linux does so with what a UDP socket sends over IPv4 in transport mode (__ip_append_data).
    ``aggfrag``: the payload of ESP is RFC 9347's, into which packets that wait are put together and
    long ones are cut.
    """
    header = Layer("AGGFRAG header", 4 * aggfrag, "RFC 9347 section 6.1.1")

    def layers(wrapped_bytes: int) -> tuple[Layer, ...]:
        pad = padding(header.bytes + wrapped_bytes + _TRAILER_BYTES, suite.block_bytes)
        return (
            ip_layer(outer_ip),
            *(
                (Layer("UDP encapsulation", 8, "RFC 3948 section 2.1"),)
                if udp_encapsulation
                else ()
            ),
            Layer("ESP header", 8, "RFC 4303 section 2: SPI and sequence number"),
            *((Layer("ESP IV", suite.iv_bytes, suite.source),) if suite.iv_bytes else ()),
            *((header,) if aggfrag else ()),
            Layer("ESP padding", pad, "RFC 4303 section 2.4"),
            Layer("ESP trailer", _TRAILER_BYTES, "RFC 4303 section 2.5, 2.6"),
            Layer("ESP ICV", suite.icv_bytes, suite.source),
        )

    wraps: Literal["packet", "ip_payload"] = "packet" if mode == "tunnel" else "ip_payload"
    ip = IP_HEADER_BYTES[outer_ip]

    def most_bytes(link_mtu_bytes: int) -> int:
        """Return the longest that fits one packet."""
        udp = 8 if udp_encapsulation else 0
        room = link_mtu_bytes - ip - udp - 8 - suite.iv_bytes - suite.icv_bytes
        return room // suite.block_bytes * suite.block_bytes - _TRAILER_BYTES - header.bytes

    def cut_bytes(link_mtu_bytes: int) -> int:
        # Linux, xfrm_state_mtu: the longest packet, its IP header included, that ESP leaves whole.
        return most_bytes(link_mtu_bytes) + ip

    def pieces(wrapped_bytes: int, link_mtu_bytes: int) -> tuple[int, ...]:
        # Linux, iptfs_copy_create_frags: all but the last fill a packet.
        most = most_bytes(link_mtu_bytes)
        full, rest = divmod(wrapped_bytes, most)
        return tuple(
            piece + sum(layer.bytes for layer in layers(piece))
            for piece in (*(most,) * full, *((rest,) if rest else ()))
        )

    cut = cut_bytes if cut_before else None
    return Encapsulation(
        layers,
        inner_mtu_bytes,
        outer_ip,
        wraps,
        shares=aggfrag,
        cut_bytes=cut,
        pieces=pieces if aggfrag else None,
    )


_TRAILER_BYTES: Final = 2
