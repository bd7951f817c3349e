"""Exact sizes of the outer packets of a datagram: a pure model that the wire is compared with.

A tunnel driver describes its encapsulation as a function from the length of one inner packet to the
layers around it. This module does the rest: UDP and IP headers, fragmentation inside and outside,
and the fragmentation point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

IpVersion = Literal[4, 6]
IpName = Literal["ipv4", "ipv6"]
"""The same as studies write it."""

IP_VERSIONS: Final[dict[IpName, IpVersion]] = {"ipv4": 4, "ipv6": 6}
IP_SHOWN: Final[dict[IpName, str]] = {"ipv4": "IPv4", "ipv6": "IPv6"}
"""Names of the versions for a reader."""

IP_HEADER_BYTES: Final[dict[IpVersion, int]] = {4: 20, 6: 40}
"""RFC 791 section 3.1 without options; RFC 8200 section 3."""
UDP_HEADER_BYTES: Final = 8
"""RFC 768."""
TCP_HEADER_BYTES: Final = 20
"""RFC 9293 section 3.1, without options."""
TCP_TIMESTAMPS_BYTES: Final = 12
"""RFC 7323 appendix A: the timestamps option, 10 bytes, behind two of padding."""
IPV6_FRAGMENT_HEADER_BYTES: Final = 8
"""RFC 8200 section 4.5."""
LEAST_IPV6_MTU_BYTES: Final = 1280
"""RFC 8200 section 5."""
LARGEST_PAYLOAD_BYTES: Final = 65507
"""Largest UDP payload over IPv4: 65535 minus both headers."""


@dataclass(frozen=True)
class Layer:
    """Bytes that one layer adds to one packet."""

    name: str
    bytes: int
    source: str
    """RFC and section, or the program's documentation."""


@dataclass(frozen=True)
class Encapsulation:
    """How a tunnel wraps one inner packet."""

    layers: Callable[[int], tuple[Layer, ...]]
    """Bytes of what is wrapped to the layers added, outermost first, outer IP header included."""
    inner_mtu_bytes: int
    """MTU of the interface that the datagram enters; longer packets are fragmented before that."""
    outer_ip: IpVersion = 4
    wraps: Literal["packet", "ip_payload"] = "packet"
    """``ip_payload``: the datagram's own IP header becomes the outer one (ESP transport mode)."""
    stream: bool = False
    """The carrier is TCP: the first two layers are its IP and TCP headers, which every segment has.

    Sizes are then those of a packet that finds the stream idle, without acknowledgements: in a
    burst TCP may put two packets into one segment, or cut one elsewhere."""
    below_ip: bool = False
    """The layers are the link's own frame: the MTU does not count them and nothing cuts them."""
    shares: bool = False
    """Packets that enter one right behind the other may share one on the link (QUIC).

    Sizes are then those of a packet that goes alone, and without an acknowledgement."""
    cut_bytes: Callable[[int], int] | None = None
    """Link MTU to the length to which packets longer than it are cut up; None: to the MTU itself.

    Bytes include the IP header.
    """
    pieces: Callable[[int, int], tuple[int, ...]] | None = None
    """How the tunnel itself cuts what does not fit one outer packet: IP has then nothing to cut.

    (Bytes of what is wrapped, link MTU) to the IP lengths of the outer packets.
    """


@dataclass(frozen=True)
class Carried:
    """A packet that enters a tunnel, and what carries it; lengths with IP headers."""

    inner_packet_bytes: int
    outer_packet_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Wire:
    """One datagram on the link."""

    payload_bytes: int
    packets: tuple[Carried, ...]
    """Those that enter the tunnel, or the one datagram where there is none."""
    layers: tuple[Layer, ...]
    """What each layer added, summed over all packets, outermost first."""

    @property
    def outer_packet_bytes(self) -> tuple[int, ...]:
        """IP length of each outer packet, in order of sending."""
        return tuple(length for one in self.packets for length in one.outer_packet_bytes)

    @property
    def overhead_bytes(self) -> int:
        """Outer IP bytes minus payload."""
        return sum(self.outer_packet_bytes) - self.payload_bytes


def fragment(ip_bytes: int, mtu_bytes: int, version: IpVersion) -> tuple[int, ...]:
    """Return the IP lengths of the packets into which one packet is split for an MTU.

    All but the last carry a multiple of 8 bytes (RFC 791 section 3.2, RFC 8200 section 4.5).
    """
    if ip_bytes <= mtu_bytes:
        return (ip_bytes,)
    header = IP_HEADER_BYTES[version]
    per_fragment = header if version == 4 else header + IPV6_FRAGMENT_HEADER_BYTES  # noqa: PLR2004
    room = (mtu_bytes - per_fragment) // 8 * 8
    if room <= 0:
        raise ValueError(f"an MTU of {mtu_bytes} bytes leaves no room for a fragment")
    data = ip_bytes - header
    full, rest = divmod(data, room)
    return (per_fragment + room,) * full + ((per_fragment + rest,) if rest else ())


def datagram(
    payload_bytes: int,
    *,
    link_mtu_bytes: int,
    encapsulation: Encapsulation | None,
    inner_ip: IpVersion = 4,
) -> Wire:
    """Return what one UDP datagram becomes on a link; without encapsulation it goes as it is."""
    ip = IP_HEADER_BYTES[inner_ip]
    whole = ip + UDP_HEADER_BYTES + payload_bytes
    udp = Layer("inner UDP header", UDP_HEADER_BYTES, "RFC 768")
    inner_header = Layer(f"inner IPv{inner_ip} header", ip, _IP_SOURCE[inner_ip])
    if encapsulation is None:
        packets = fragment(whole, link_mtu_bytes, inner_ip)
        headers = Layer(f"IPv{inner_ip} header", sum(packets) - whole + ip, _IP_SOURCE[inner_ip])
        return Wire(
            payload_bytes,
            (Carried(whole, packets),),
            (headers, Layer("UDP header", UDP_HEADER_BYTES, "RFC 768")),
        )
    added: dict[str, Layer] = {}
    if encapsulation.wraps == "ip_payload":
        layers = encapsulation.layers(whole - ip)
        outer = _wrapped(whole - ip, layers, link_mtu_bytes, encapsulation, added)
        return Wire(payload_bytes, (Carried(whole, outer),), (*added.values(), udp))
    inner = fragment(whole, encapsulation.inner_mtu_bytes, inner_ip)
    carried = tuple(
        Carried(
            length,
            _wrapped(length, encapsulation.layers(length), link_mtu_bytes, encapsulation, added),
        )
        for length in inner
    )
    inner_header = Layer(inner_header.name, sum(inner) - whole + ip, inner_header.source)
    return Wire(payload_bytes, carried, (*added.values(), inner_header, udp))


def fragmentation_point(
    *, link_mtu_bytes: int, encapsulation: Encapsulation | None, inner_ip: IpVersion = 4
) -> int | None:
    """Return the largest UDP payload carried in one outer packet; None if even 1 byte is not."""

    def packets(payload_bytes: int) -> int:
        wire = datagram(
            payload_bytes,
            link_mtu_bytes=link_mtu_bytes,
            encapsulation=encapsulation,
            inner_ip=inner_ip,
        )
        return len(wire.outer_packet_bytes)

    low, high = 0, LARGEST_PAYLOAD_BYTES  # packets(low) == 1 is checked below, high is past it
    if packets(1) > 1:
        return None
    if packets(high) == 1:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if packets(middle) == 1:
            low = middle
        else:
            high = middle
    return low


def best_inner_mtu(*, link_mtu_bytes: int, encapsulation: Encapsulation) -> int:
    """Return the longest packet within the inner MTU whose outer packet is not fragmented."""
    if encapsulation.below_ip:
        return min(link_mtu_bytes, encapsulation.inner_mtu_bytes)
    best = 0
    for inner in range(min(link_mtu_bytes, encapsulation.inner_mtu_bytes), 0, -1):
        header = IP_HEADER_BYTES[encapsulation.outer_ip]
        wrapped = inner - (header if encapsulation.wraps == "ip_payload" else 0)
        if wrapped + sum(layer.bytes for layer in encapsulation.layers(wrapped)) <= link_mtu_bytes:
            best = inner
            break
    return best


def padding(length_bytes: int, block_bytes: int) -> int:
    """Return how many bytes bring a length to the next multiple of a block, 0 if it is one."""
    return -length_bytes % block_bytes


def segment(wrapped_bytes: int, headers_bytes: int, mtu_bytes: int) -> tuple[int, ...]:
    """Return the IP lengths of the TCP segments that carry so many bytes written at once.

    Every segment but the last is full (RFC 9293 section 3.7.1: an MSS is what the MTU leaves).
    """
    room = mtu_bytes - headers_bytes
    if room <= 0:
        raise ValueError(f"an MTU of {mtu_bytes} bytes leaves no room for a segment")
    full, rest = divmod(wrapped_bytes, room)
    return (headers_bytes + room,) * full + ((headers_bytes + rest,) if rest else ())


def segment_headers_bytes(layers: Sequence[Layer]) -> int:
    """Return what IP and TCP have in each segment that carries a stream, of all its layers."""
    return sum(layer.bytes for layer in layers[:2])


def tcp_layer() -> Layer:
    """Return the outer TCP header as a layer, with the timestamps that Linux agrees on."""
    return Layer(
        "outer TCP header",
        TCP_HEADER_BYTES + TCP_TIMESTAMPS_BYTES,
        "RFC 9293 section 3.1, RFC 7323 appendix A",
    )


def ip_layer(version: IpVersion) -> Layer:
    """Return the outer IP header as a layer."""
    return Layer(f"outer IPv{version} header", IP_HEADER_BYTES[version], _IP_SOURCE[version])


def udp_layer() -> Layer:
    """Return the outer UDP header as a layer."""
    return Layer("outer UDP header", UDP_HEADER_BYTES, "RFC 768")


_IP_SOURCE: Final[dict[IpVersion, str]] = {4: "RFC 791 section 3.1", 6: "RFC 8200 section 3"}


def _wrapped(
    wrapped_bytes: int,
    layers: tuple[Layer, ...],
    mtu_bytes: int,
    encapsulation: Encapsulation,
    added: dict[str, Layer],
) -> tuple[int, ...]:
    version = encapsulation.outer_ip
    whole = wrapped_bytes + sum(layer.bytes for layer in layers)
    if encapsulation.below_ip:
        mtu_bytes = whole
    if encapsulation.stream:
        headers = segment_headers_bytes(layers)
        packets = segment(whole - headers, headers, mtu_bytes)
        extra = Layer("headers of further segments", sum(packets) - whole, "RFC 9293 section 3.1")
    elif encapsulation.pieces is not None:
        packets = encapsulation.pieces(wrapped_bytes, mtu_bytes)
        extra = Layer("headers of further pieces", sum(packets) - whole, layers[0].source)
    else:
        if whole > mtu_bytes and encapsulation.cut_bytes is not None:
            mtu_bytes = encapsulation.cut_bytes(mtu_bytes)
        packets = fragment(whole, mtu_bytes, version)
        extra = Layer("outer fragment headers", sum(packets) - whole, _IP_SOURCE[version])
    for layer in (*layers, *((extra,) if extra.bytes else ())):
        seen = added.get(layer.name)
        added[layer.name] = Layer(
            layer.name, layer.bytes + (seen.bytes if seen else 0), layer.source
        )
    return packets
