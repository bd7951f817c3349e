"""Strict, bounded reader of a packet capture: bytes in, frozen packets out, no clock, no file.

A capture is untrusted input: what stands in it came over a link. dpkt reads over damaged lengths
in silence and dissects what it guesses to be inside, so the few headers needed are parsed here.
"""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tunnelmark.model.errors import LabError

TCP: Final = 6
GRE: Final = 47
UDP: Final = 17
ICMPV6: Final = 58

MAX_PACKETS: Final = 1_000_000
MAX_PACKET_BYTES: Final = 262_144
"""Largest snap length tcpdump knows."""


@dataclass(frozen=True, slots=True)
class WirePacket:
    """One IP packet as it went over the link."""

    time_ns: int
    """When it was captured, in the capturing kernel's real time."""
    ip_version: Literal[4, 6]
    ip_bytes: int
    """Length from the first byte of the IP header to the last of the packet, without padding."""
    protocol: int
    """IP protocol number; for IPv6 that behind the extension headers."""
    source: str
    destination: str
    source_port: int | None
    """Port of UDP or TCP; None for other protocols and for all fragments but the first."""
    destination_port: int | None
    fragment_id: int | None
    """Identification that all fragments of one packet share; None when it is whole."""
    fragment_offset_bytes: int
    more_fragments: bool
    payload: bytes
    """What follows the UDP or TCP header, or the IP header where there is none of those."""
    traffic_class: int = 0
    """DSCP and ECN, as one byte."""

    @property
    def fragment(self) -> bool:
        """Whether this is a part of a longer packet."""
        return self.fragment_id is not None


@dataclass(frozen=True, slots=True)
class OtherFrame:
    """A frame that is no whole, well-formed IP packet."""

    time_ns: int
    ether_type: int
    reason: str
    """``not IP``, or what is wrong with the IP packet."""
    payload: bytes
    """Everything behind the Ethernet header."""
    source: str = ""
    """Ethernet address of the sender, ``02:00:00:00:00:01``; empty if the frame has none."""


Frame = WirePacket | OtherFrame


def read_pcap(
    data: bytes, *, max_packets: int = MAX_PACKETS, place: str = "capture"
) -> tuple[Frame, ...]:
    """Return the frames of a pcap file with Ethernet link layer, micro- or nanoseconds.

    Raises ``LabError`` if the file is no such file, ends in the middle of a packet, names lengths
    that cannot be, or holds more than ``max_packets``.
    """
    records = read_records(data, max_packets=max_packets, place=place, link_type=_LINKTYPE_ETHERNET)
    return tuple(parse_frame(time_ns, frame) for time_ns, frame in records)


def read_records(
    data: bytes, *, max_packets: int, place: str, link_type: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (time, frame) of a pcap file of one link layer; ``LabError`` as ``read_pcap`` says."""
    return _records(data, max_packets, place, link_type)


def parse_frame(time_ns: int, frame: bytes) -> Frame:
    """Return what one Ethernet frame carries; never fails, whatever the bytes."""
    if len(frame) < _ETHERNET_BYTES:
        return OtherFrame(time_ns, 0, f"{len(frame)} bytes are not an Ethernet frame", frame)
    at = _ETHERNET_BYTES
    source = frame[6:12].hex(":")
    ether_type = int.from_bytes(frame[12:14], "big")
    for _ in range(_MAX_VLAN_TAGS):
        if ether_type not in _VLAN_TYPES or len(frame) < at + 4:
            break
        ether_type = int.from_bytes(frame[at + 2 : at + 4], "big")
        at += 4
    packet = frame[at:]
    try:
        if ether_type == _IPV4:
            return _ipv4(time_ns, packet)
        if ether_type == _IPV6:
            return _ipv6(time_ns, packet)
    except _MalformedError as error:
        return OtherFrame(time_ns, ether_type, str(error), packet, source)
    return OtherFrame(time_ns, ether_type, "not IP", packet, source)


class _MalformedError(Exception):
    """A packet that contradicts itself."""


_ETHERNET_BYTES: Final = 14
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_VLAN_TYPES: Final = frozenset({0x8100, 0x88A8})
_MAX_VLAN_TAGS: Final = 2
_FILE_HEADER_BYTES: Final = 24
_RECORD_HEADER_BYTES: Final = 16
_LINKTYPE_ETHERNET: Final = 1
_LINKTYPES: Final = {1: "Ethernet", 127: "radiotap"}
# pcap-savefile(5): the magic tells the byte order and the unit of the fraction of a second.
_MAGIC: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
# RFC 8200 section 4.1: headers that may stand between IPv6 and the transport protocol.
_IPV6_EXTENSIONS: Final = frozenset({0, 43, 60})
_IPV6_FRAGMENT: Final = 44
_MAX_IPV6_EXTENSIONS: Final = 8
_SECOND_NS: Final = 10**9


def _records(
    data: bytes, max_packets: int, place: str, link_type: int
) -> Iterator[tuple[int, bytes]]:
    order, fraction_ns = _file_header(data, place, link_type)
    header = struct.Struct(f"{order}IIII")
    at, count = _FILE_HEADER_BYTES, 0
    while at < len(data):
        if count == max_packets:
            raise LabError(f"{place}: more than {max_packets} packets")
        if len(data) - at < _RECORD_HEADER_BYTES:
            raise LabError(f"{place}: packet {count} ends in its header at byte {len(data)}")
        seconds, fraction, captured, original = header.unpack_from(data, at)
        at += _RECORD_HEADER_BYTES
        if fraction * fraction_ns >= _SECOND_NS:
            raise LabError(f"{place}: packet {count} has {fraction} as fraction of a second")
        if captured > MAX_PACKET_BYTES or captured > original:
            raise LabError(
                f"{place}: packet {count} has {captured} bytes captured of {original}, "
                f"limit {MAX_PACKET_BYTES}"
            )
        if captured > len(data) - at:
            raise LabError(
                f"{place}: packet {count} has {captured} bytes, {len(data) - at} are left"
            )
        yield seconds * _SECOND_NS + fraction * fraction_ns, data[at : at + captured]
        at += captured
        count += 1


def _file_header(data: bytes, place: str, wanted: int) -> tuple[str, int]:
    """Return the byte order and the nanoseconds in one unit of a fraction of a second."""
    if len(data) < _FILE_HEADER_BYTES:
        raise LabError(
            f"{place}: {len(data)} bytes are too few for a pcap file, whose header has 24"
        )
    if data[:4] not in _MAGIC:
        raise LabError(f"{place}: starts with {data[:4].hex()}, which is not a pcap file")
    order, fraction_ns = _MAGIC[data[:4]]
    major, minor, _, _, _, link_type = struct.unpack(f"{order}HHiIII", data[4:24])
    if (major, minor) != (2, 4):
        raise LabError(f"{place}: pcap version {major}.{minor}, only 2.4 is known")
    # The upper bits may carry the length of the FCS (pcap-savefile(5)); tcpdump sets none here.
    if link_type != wanted:
        name = _LINKTYPES.get(wanted, "")
        raise LabError(f"{place}: link type {link_type}, only {name} ({wanted})")
    return order, fraction_ns


class _IpHeader(NamedTuple):
    """What IPv4 and IPv6 headers have in common."""

    version: Literal[4, 6]
    total_bytes: int
    protocol: int
    source: str
    destination: str
    fragment_id: int | None
    offset_bytes: int
    more: bool
    traffic_class: int


def _ipv4(time_ns: int, packet: bytes) -> WirePacket:
    # RFC 791 section 3.1
    if len(packet) < 20:  # noqa: PLR2004 - the fixed header
        raise _MalformedError(f"IPv4 header of {len(packet)} bytes, at least 20")
    header_bytes = (packet[0] & 0x0F) * 4
    total = int.from_bytes(packet[2:4], "big")
    if packet[0] >> 4 != 4 or header_bytes < 20 or total < header_bytes:  # noqa: PLR2004
        raise _MalformedError(
            f"IPv4 with version {packet[0] >> 4}, header of {header_bytes} bytes, length {total}"
        )
    if total > len(packet):
        raise _MalformedError(f"IPv4 length {total}, {len(packet)} bytes captured")
    flags = int.from_bytes(packet[6:8], "big")
    more, offset = bool(flags & 0x2000), (flags & 0x1FFF) * 8
    header = _IpHeader(
        version=4,
        total_bytes=total,
        protocol=packet[9],
        source=str(ipaddress.IPv4Address(packet[12:16])),
        destination=str(ipaddress.IPv4Address(packet[16:20])),
        fragment_id=int.from_bytes(packet[4:6], "big") if more or offset else None,
        offset_bytes=offset,
        more=more,
        traffic_class=packet[1],
    )
    return _transport(time_ns, header, packet[header_bytes:total])


def _ipv6(time_ns: int, packet: bytes) -> WirePacket:
    # RFC 8200 sections 3 and 4
    if len(packet) < 40 or packet[0] >> 4 != 6:  # noqa: PLR2004 - the fixed header, the version
        raise _MalformedError(f"{len(packet)} bytes are not an IPv6 header")
    total = 40 + int.from_bytes(packet[4:6], "big")
    if total > len(packet):
        raise _MalformedError(f"IPv6 length {total}, {len(packet)} bytes captured")
    protocol, at = packet[6], 40
    identification: int | None = None
    offset, more = 0, False
    for _ in range(_MAX_IPV6_EXTENSIONS):
        # Behind the header of a later fragment stands the middle of something, not a header.
        if protocol not in (*_IPV6_EXTENSIONS, _IPV6_FRAGMENT) or offset:
            break
        if total - at < 8:  # noqa: PLR2004 - the shortest extension header
            raise _MalformedError(f"IPv6 extension header {protocol} is cut off at byte {total}")
        if protocol == _IPV6_FRAGMENT:
            field = int.from_bytes(packet[at + 2 : at + 4], "big")
            offset, more = field & 0xFFF8, bool(field & 1)
            identification = int.from_bytes(packet[at + 4 : at + 8], "big")
            length = 8
        else:
            length = 8 + packet[at + 1] * 8
        if at + length > total:
            raise _MalformedError(f"IPv6 extension header {protocol} of {length} bytes is too long")
        protocol = packet[at]
        at += length
    header = _IpHeader(
        version=6,
        total_bytes=total,
        protocol=protocol,
        source=str(ipaddress.IPv6Address(packet[8:24])),
        destination=str(ipaddress.IPv6Address(packet[24:40])),
        fragment_id=identification,
        offset_bytes=offset,
        more=more,
        traffic_class=int.from_bytes(packet[0:2], "big") >> 4 & 0xFF,
    )
    return _transport(time_ns, header, packet[at:total])


def _transport(time_ns: int, ip: _IpHeader, payload: bytes) -> WirePacket:
    ports: tuple[int | None, int | None] = (None, None)
    if ip.offset_bytes == 0:
        header_bytes = 0
        if ip.protocol == UDP and len(payload) >= 8:  # noqa: PLR2004 - RFC 768
            header_bytes = 8
        elif ip.protocol == TCP and len(payload) >= 20:  # noqa: PLR2004 - RFC 9293 section 3.1
            # A data offset that is nonsense hides nothing: all behind the fixed header counts.
            stated = (payload[12] >> 4) * 4
            header_bytes = stated if 20 <= stated <= len(payload) else 20  # noqa: PLR2004
        if header_bytes:
            ports = (int.from_bytes(payload[0:2], "big"), int.from_bytes(payload[2:4], "big"))
            payload = payload[header_bytes:]
    return WirePacket(
        time_ns=time_ns,
        ip_version=ip.version,
        ip_bytes=ip.total_bytes,
        protocol=ip.protocol,
        source=ip.source,
        destination=ip.destination,
        source_port=ports[0],
        destination_port=ports[1],
        fragment_id=ip.fragment_id,
        fragment_offset_bytes=ip.offset_bytes,
        more_fragments=ip.more,
        payload=payload,
        traffic_class=ip.traffic_class,
    )
