"""The judge: what may be on the link, and how little readable text gives a tunnel away."""

import zlib
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.judge import MARKER_BYTES, Judge, make_marker
from tunnelmark.probes.pcap import OtherFrame, WirePacket

RULE = WireRule(
    encrypted=True, describe="UDP to or from port 1194", ip_protocols=(17,), udp_ports=(1194,)
)
MARKER = make_marker(7)
NOISE = make_marker(8)


def packet(payload: bytes = b"", port: int = 1194, protocol: int = 17) -> WirePacket:
    return WirePacket(
        0, 4, 28 + len(payload), protocol, "198.18.0.1", "198.18.0.2",
        40000, port, None, 0, more_fragments=False, payload=payload,
    )  # fmt: skip


def test_the_marker_is_the_run_s_own_and_does_not_compress() -> None:
    assert make_marker(1) == make_marker(1) != make_marker(2)
    assert len(zlib.compress(make_marker(1), 9)) >= MARKER_BYTES


def test_a_clean_tunnel_has_no_fault() -> None:
    judge = Judge(RULE, MARKER)
    judge.look_at([packet(NOISE[:1000]), packet(NOISE[:20])])
    assert judge.faults() == []
    assert (judge.packets, judge.foreign, judge.readable) == (2, 0, 0)


@given(
    start=st.integers(0, MARKER_BYTES - 1),
    length=st.integers(8, 1500),
    before=st.binary(max_size=40),
    after=st.binary(max_size=40),
)
def test_any_eight_bytes_of_the_marker_are_found_wherever_they_stand(
    start: int, length: int, before: bytes, after: bytes
) -> None:
    judge = Judge(RULE, MARKER)
    piece = (MARKER * 2)[start : start + length]
    judge.look_at([packet(before + piece + after)])
    assert judge.readable == 1
    (fault,) = judge.faults()
    assert fault == (
        "the plaintext marker is readable in 1 of 1 packets, the first is UDP from "
        f"198.18.0.1 port 40000 to 198.18.0.2 port 1194, {28 + len(before + piece + after)} bytes"
    )


@pytest.mark.parametrize(("allowed", "foreign"), [(None, 0), (4, 0), (6, 1)])
def test_packets_of_the_other_ip_version_are_not_the_tunnel_s(
    allowed: Literal[4, 6] | None, foreign: int
) -> None:
    judge = Judge(replace(RULE, ip_version=allowed), MARKER)
    judge.look_at([packet(NOISE[:100])])
    assert judge.foreign == foreign


@given(st.binary(max_size=200))
def test_bytes_without_the_marker_are_not_taken_for_it(payload: bytes) -> None:
    judge = Judge(RULE, MARKER)
    judge.look_at([packet(payload)])
    assert judge.readable == 0


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (packet(port=7790), "UDP from 198.18.0.1 port 40000 to 198.18.0.2 port 7790, 28 bytes"),
        (packet(protocol=6), "TCP from 198.18.0.1 port 40000 to 198.18.0.2 port 1194, 28 bytes"),
        (
            OtherFrame(0, 0x88B5, "not IP", b"abc"),
            "a frame of type 0x88b5, 3 bytes: not IP",
        ),
    ],
)
def test_a_foreign_packet_is_counted_and_named(frame: WirePacket | OtherFrame, named: str) -> None:
    judge = Judge(RULE, MARKER)
    judge.look_at([packet(), frame, frame])
    assert judge.foreign == 2
    assert judge.faults() == [
        "2 of 3 packets on the link are not UDP to or from port 1194, the first is " + named
    ]


def test_a_later_fragment_is_as_its_first_one_and_foreign_without() -> None:
    first = replace(packet(), fragment_id=5, more_fragments=True)
    rest = replace(
        packet(), fragment_id=5, fragment_offset_bytes=1480, source_port=None, destination_port=None
    )
    judge = Judge(RULE, MARKER)
    judge.look_at([rest, first])
    assert judge.foreign == 0
    judge.look_at([replace(rest, fragment_id=6), first])
    assert judge.foreign == 1
    stranger = replace(first, destination_port=53)
    judge = Judge(RULE, MARKER)
    judge.look_at([stranger, rest])
    assert judge.foreign == 2


def test_behind_a_line_that_loses_a_later_fragment_may_come_without_its_first_one() -> None:
    rest = replace(
        packet(), fragment_id=5, fragment_offset_bytes=1480, source_port=None, destination_port=None
    )
    judge = Judge(RULE, MARKER, behind_loss=True)
    judge.look_at([rest])
    assert judge.foreign == 0
    # Of what is seen whole, or with its first one, all is known.
    stranger = replace(packet(), fragment_id=6, more_fragments=True, destination_port=53)
    judge.look_at([stranger, replace(rest, fragment_id=6), replace(rest, protocol=6)])
    assert judge.foreign == 3


def test_the_marker_in_a_frame_of_the_link_s_own_is_found_too() -> None:
    judge = Judge(RULE, MARKER)
    arp = OtherFrame(0, 0x0806, "not IP", bytes(28))
    discovery = replace(packet(b"\x87" + bytes(23), protocol=58), source_port=None)
    judge.look_at([packet(), arp, discovery])
    assert (judge.packets, judge.control, judge.faults()) == (1, 2, [])
    judge.look_at([replace(arp, payload=MARKER[:28])])
    assert judge.readable == 1


def test_a_kernel_that_misses_a_daemon_is_not_foreign_but_an_echo_is() -> None:
    """A daemon that dies during the proof is tried again: its kernel's complaint proves nothing."""
    error, echo = (
        replace(packet(bytes((kind, 3)) + NOISE[:60], protocol=1), source_port=None)
        for kind in (3, 8)
    )
    judge = Judge(RULE, MARKER)
    judge.look_at([packet(), error])
    assert (judge.packets, judge.control, judge.faults()) == (1, 1, [])
    judge.look_at([replace(error, payload=error.payload[:8] + MARKER[:28])])
    assert judge.readable == 1
    judge.look_at([echo])
    assert judge.foreign == 1


def test_a_keepalive_of_an_idle_tunnel_beside_is_not_foreign() -> None:
    bare = WireRule(
        encrypted=False, describe="UDP to or from port 7790", ip_protocols=(17,), udp_ports=(7790,)
    )
    judge = Judge(bare, MARKER, idle=(RULE,))
    judge.look_at([packet(MARKER[:100], port=7790), packet(NOISE[:32])])
    assert judge.faults() == []


def test_without_encryption_the_marker_must_be_seen() -> None:
    judge = Judge(replace(RULE, encrypted=False), MARKER)
    judge.look_at([packet(NOISE[:100])])
    assert judge.faults() == []
    assert judge.missing() == [
        "the plaintext marker is in none of the 1 packets although nothing encrypts them"
    ]


def test_a_silent_link_shows_nothing_wrong() -> None:
    assert Judge(RULE, MARKER).faults() == []
