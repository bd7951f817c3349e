"""Which packets on the link the rule of a tunnel allows, and in which a marker can be read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.pcap import ICMPV6, TCP, UDP, Frame, OtherFrame, WirePacket

MARKER_BYTES: Final = 4096
"""Length of the marker: more than a datagram, so that no compression can shorten its repetition."""
READABLE_BYTES: Final = 8
"""So many consecutive bytes of the marker, at any place of it, count as readable text."""


def make_marker(seed: int) -> bytes:
    """Return the plaintext marker of a run: text that nothing else can contain by chance.

    It looks random, so that a tunnel that compresses cannot shorten it, and each part of it is
    known, so that any fragment, also one that was compressed but not encrypted, gives it away.
    """
    return hashlib.shake_256(f"tunnelmark/wire/marker/{seed}".encode()).digest(MARKER_BYTES)


@dataclass
class Judge:
    """Counts frames that break the rule and frames in which the marker stands readable."""

    rule: WireRule
    marker: bytes
    idle: Sequence[WireRule] = ()
    """Rules of tunnels that are up, carry nothing now, and may still send a keepalive."""
    behind_loss: bool = False
    """Packets may be lost before they are seen: a later fragment may come without its first one."""
    packets: int = 0
    """IP packets and frames that are no control of the link itself."""
    control: int = 0
    """ARP, neighbour discovery, multicast membership, ICMP errors: the link's own housekeeping."""
    foreign: int = 0
    readable: int = 0
    first_foreign: str = ""
    first_readable: str = ""
    _parts: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Cut the marker, which repeats, into every part that may stand somewhere."""
        cyclic = self.marker + self.marker[: READABLE_BYTES - 1]
        self._parts = frozenset(cyclic[at : at + READABLE_BYTES] for at in range(len(self.marker)))

    def look_at(self, frames: Sequence[Frame]) -> None:
        """Judge the frames of one capture, in both directions."""
        firsts = {
            _fragment_key(frame): frame
            for frame in frames
            if isinstance(frame, WirePacket) and frame.fragment and not frame.fragment_offset_bytes
        }
        for frame in frames:
            if self._contains_marker(frame.payload):
                self.readable += 1
                self.first_readable = self.first_readable or describe(frame)
            if is_link_control(frame):
                self.control += 1
                continue
            self.packets += 1
            if not self._allowed(frame, firsts):
                self.foreign += 1
                self.first_foreign = self.first_foreign or describe(frame)

    def faults(self) -> list[str]:
        """Return what the rule does not allow, as sentences with figures."""
        faults = []
        if self.foreign:
            faults.append(
                f"{self.foreign} of {self.packets} packets on the link are not "
                f"{self.rule.describe}, the first is {self.first_foreign}"
            )
        if self.rule.encrypted and self.readable:
            faults.append(
                f"the plaintext marker is readable in {self.readable} of {self.packets} "
                f"packets, the first is {self.first_readable}"
            )
        return faults

    def missing(self) -> list[str]:
        """Return what packets without encryption should have shown of probes that arrived."""
        if not self.packets or self.rule.encrypted or self.readable:
            return []
        words = f"the plaintext marker is in none of the {self.packets} packets"
        return [f"{words} although nothing encrypts them"]

    def _contains_marker(self, payload: bytes) -> bool:
        return any(
            payload[at : at + READABLE_BYTES] in self._parts
            for at in range(len(payload) - READABLE_BYTES + 1)
        )

    def _allowed(self, frame: Frame, firsts: "dict[_FragmentKey, WirePacket]") -> bool:
        if isinstance(frame, OtherFrame):
            return any(frame.ether_type in rule.ether_types for rule in (self.rule, *self.idle))
        # A later fragment has no ports: it is as its first one, which was seen or is missed.
        first = firsts.get(_fragment_key(frame)) if frame.fragment_offset_bytes else frame
        rules = (self.rule, *self.idle)
        if first is None and self.behind_loss:
            return any(_of_protocol(frame, rule) for rule in rules)
        return any(_matches(frame, first, rule) for rule in rules)


def describe(frame: Frame) -> str:
    """Return a frame in a few words for a message."""
    if isinstance(frame, OtherFrame):
        return (
            f"a frame of type 0x{frame.ether_type:04x}, {len(frame.payload)} bytes: {frame.reason}"
        )
    protocol = {UDP: "UDP", TCP: "TCP", 1: "ICMP", ICMPV6: "ICMPv6", 50: "ESP", 47: "GRE"}.get(
        frame.protocol, f"protocol {frame.protocol}"
    )
    ports = ("", "")
    if frame.source_port is not None:
        ports = (f" port {frame.source_port}", f" port {frame.destination_port}")
    part = f", fragment at {frame.fragment_offset_bytes}" if frame.fragment_offset_bytes else ""
    return (
        f"{protocol} from {frame.source}{ports[0]} to {frame.destination}{ports[1]}, "
        f"{frame.ip_bytes} bytes{part}"
    )


def is_link_control(frame: Frame) -> bool:
    """Say whether a frame is the link's own housekeeping."""
    if isinstance(frame, OtherFrame):
        return frame.ether_type == _ARP
    if frame.protocol == _IGMP:
        return True
    messages = CONTROL_MESSAGES.get(frame.protocol, frozenset())
    return not frame.fragment and bool(frame.payload) and frame.payload[0] in messages


_ARP: Final = 0x0806
_IGMP: Final = 2
_ICMP: Final = 1
CONTROL_MESSAGES: Final = {
    # RFC 792: errors. They quote a packet of the link, which is judged for itself; a daemon that
    # died makes its kernel send them, and is seen by the probes that do not arrive.
    _ICMP: frozenset({3, 11, 12}),
    # RFC 4443, RFC 4861, RFC 3810: errors, multicast listener and neighbour discovery messages.
    ICMPV6: frozenset({1, 2, 3, 4, 130, 131, 132, 133, 134, 135, 136, 143}),
}
_FragmentKey = tuple[str, str, int, int | None]


def _of_protocol(packet: WirePacket, rule: WireRule) -> bool:
    return packet.protocol in rule.ip_protocols and rule.ip_version in {None, packet.ip_version}


def _matches(packet: WirePacket, first: WirePacket | None, rule: WireRule) -> bool:
    if not _of_protocol(packet, rule):
        return False
    ports = {UDP: rule.udp_ports, TCP: rule.tcp_ports}.get(packet.protocol, ())
    if not ports:
        return True
    return first is not None and bool({first.source_port, first.destination_port} & {*ports})


def _fragment_key(packet: WirePacket) -> _FragmentKey:
    return (packet.source, packet.destination, packet.protocol, packet.fragment_id)
