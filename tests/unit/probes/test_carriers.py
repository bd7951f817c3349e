"""What carries a datagram, and what only talks about one."""

from dataclasses import replace
from typing import Any

import pytest

from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.carriers import Carrier, carriers
from tunnelmark.probes.pcap import parse_frame

RULE = WireRule(encrypted=True, describe="MACsec", ip_protocols=(), ether_types=(0x88E5,))
CLIENT, SERVER = "198.18.0.1", "198.18.0.2"
MAC = "02:00:00:00:00:01"


def frame(protocol: int, payload: bytes, *, flags: int = 0, source: bytes = b"\1") -> Any:
    total = 20 + len(payload)
    header = bytes([0x45, 0]) + total.to_bytes(2, "big") + b"\0\1" + flags.to_bytes(2, "big")
    header += bytes([64, protocol, 0, 0]) + b"\xc6\x12\0" + source + b"\xc6\x12\0\2"
    return parse_frame(7, bytes(12) + b"\x08\x00" + header + payload)


def tcp(payload: bytes) -> bytes:
    return b"\x01\xbb\x01\xbb" + bytes(8) + b"\x80\x10" + bytes(6) + bytes(12) + payload


def gre(flags: bytes, rest: bytes) -> bytes:
    return flags + b"\x88\x0b" + bytes(4) + rest


def sizes(*frames: Any) -> list[int]:
    found = carriers(frames, rule=RULE, addresses={CLIENT}, mac=MAC)
    return [carrier.ip_bytes for carrier in found]


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (frame(17, bytes(108)), [128]),
        (frame(17, bytes(108), source=b"\2"), []),
        (frame(6, tcp(b"")), []),
        (frame(6, tcp(b"abc")), [55]),
        # PPTP (GRE version 1): sequence alone, with an acknowledgement, acknowledgement alone.
        (frame(47, gre(b"\x30\x01", bytes(4 + 100))), [132]),
        (frame(47, gre(b"\x30\x81", bytes(8 + 100))), [132]),
        (frame(47, gre(b"\x20\x81", bytes(4))), []),
        # GRE version 0 has neither; a short one is counted as it is, and so is a fragment.
        (frame(47, gre(b"\x20\x00", bytes(104))), [132]),
        (frame(47, b"\x20\x81"), [22]),
        (frame(47, gre(b"\x20\x81", bytes(4)), flags=0x2000), [32]),
        (frame(6, b"", flags=0x2003), [20]),
    ],
)
def test_what_counts(packet: Any, expected: list[int]) -> None:
    assert sizes(packet) == expected


def test_short_packets_of_quic_only_acknowledge() -> None:
    rule = replace(RULE, least_carrier_bytes=47)
    short, long = (frame(17, bytes(8 + payload)) for payload in (46, 47))
    found = carriers([short, long], rule=rule, addresses={CLIENT}, mac=MAC)
    assert [carrier.ip_bytes for carrier in found] == [75]


def test_frames_that_are_not_ip_count_by_their_sender_and_the_rule() -> None:
    own = parse_frame(9, bytes(6) + bytes.fromhex("020000000001") + b"\x88\xe5" + bytes(60))
    peer = parse_frame(9, bytes(6) + bytes.fromhex("020000000002") + b"\x88\xe5" + bytes(60))
    other = parse_frame(9, bytes(6) + bytes.fromhex("020000000001") + b"\x88\xcc" + bytes(60))
    assert carriers([own, peer, other], rule=RULE, addresses={CLIENT}, mac=MAC) == (Carrier(9, 60),)
