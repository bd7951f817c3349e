"""Which frames on the link may carry a datagram, and how many of their bytes are its own.

Some protocols talk about what they carried: TCP, PPTP and QUIC acknowledge it. Whether an
acknowledgement travels alone, on the next packet, or not at all, depends on what came back
meanwhile, so it belongs to no datagram: a packet that only acknowledges is left out, and so are the
bytes of one that rides on a packet of data. QUIC encrypts its own: there only the length says that
a packet holds nothing else.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.pcap import GRE, TCP, UDP, Frame, OtherFrame, WirePacket


@dataclass(frozen=True, slots=True)
class Carrier:
    """One packet that carried (a part of) a datagram."""

    time_ns: int
    """When it was captured."""
    ip_bytes: int
    """Its length behind the Ethernet header, without an acknowledgement that rode on it."""
    body: bytes = field(default=b"", repr=False, compare=False)
    """What followed the headers of the link, IP, UDP and TCP."""
    traffic_class: int | None = None
    """DSCP and ECN of its IP header; None: there is none."""


def carriers(
    frames: Sequence[Frame], *, rule: WireRule, addresses: Collection[str], mac: str
) -> tuple[Carrier, ...]:
    """Return what may carry datagrams in one direction, in the order of the frames.

    ``addresses`` are the IP addresses of the sender, ``mac`` is its Ethernet address, which counts
    for the frames that are not IP and that the rule allows.
    """
    found = []
    for frame in frames:
        if isinstance(frame, OtherFrame):
            if frame.source == mac and frame.ether_type in rule.ether_types:
                found.append(Carrier(frame.time_ns, len(frame.payload), frame.payload))
        elif frame.source in addresses:
            own_bytes = frame.ip_bytes - acknowledging_bytes(frame, rule.least_carrier_bytes)
            if own_bytes > 0:
                own = Carrier(frame.time_ns, own_bytes, frame.payload, frame.traffic_class)
                found.append(own)
    return tuple(found)


def acknowledging_bytes(packet: WirePacket, least_carrier_bytes: int = 0) -> int:
    """Return how many bytes of a packet only acknowledge others: none, some, or all of them."""
    if packet.fragment:
        return 0
    if packet.protocol == UDP and len(packet.payload) < least_carrier_bytes:
        return packet.ip_bytes
    if packet.protocol == TCP and packet.source_port is not None and not packet.payload:
        return packet.ip_bytes
    head = packet.payload[:_GRE_HEADER_BYTES]
    # RFC 2637 section 4.1: version 1 is that of PPTP; S says that there is a sequence number, and
    # with it data, A that there is an acknowledgement.
    if packet.protocol == GRE and len(head) == _GRE_HEADER_BYTES and head[1] & 0x07 == 1:
        if not head[0] & 0x10:
            return packet.ip_bytes
        return _GRE_ACKNOWLEDGEMENT_BYTES if head[1] & 0x80 else 0
    return 0


_GRE_HEADER_BYTES: Final = 8
_GRE_ACKNOWLEDGEMENT_BYTES: Final = 4
