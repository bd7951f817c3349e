"""Delay by place: the parts of every packet add up, and what is unknown is not reported."""

from typing import Any

import numpy as np
import pytest

from tunnelmark.engine.records import MISSING_NS
from tunnelmark.probes.pcap import OtherFrame, WirePacket
from tunnelmark.probes.split import Mark, Split, marks, sizes, split

CLIENT = frozenset({"198.18.0.1"})


def packet(time_ns: int, payload: bytes = b"x", **changes: Any) -> WirePacket:
    values: dict[str, Any] = {
        "ip_version": 4,
        "ip_bytes": 128,
        "protocol": 17,
        "source": "198.18.0.1",
        "destination": "198.18.0.2",
        "source_port": 5,
        "destination_port": 6,
        "fragment_id": None,
        "fragment_offset_bytes": 0,
        "more_fragments": False,
    }
    return WirePacket(time_ns=time_ns, payload=payload, **{**values, **changes})


def seen(*times: int | None, first: int = 0) -> list[Mark]:
    return [Mark(t, bytes([first + n])) for n, t in enumerate(times) if t is not None]


def times(*values: int | None) -> Any:
    return np.array([MISSING_NS if v is None else v for v in values], dtype=np.int64)


def parts(sent: Any, received: Any, left: list[Mark], came: list[Mark], **more: int) -> Split | str:
    return split(sent, received, received != MISSING_NS, left, came, **more)


def test_the_parts_of_each_packet_add_up() -> None:
    sent, received = times(0, 100, 200, 300), times(50, None, 255, None)
    # The second was lost on the link, the fourth behind it.
    found = parts(sent, received, seen(3, 104, 205, 306), seen(43, None, 245, 346))
    assert isinstance(found, Split)
    assert found.sender.tolist() == [3, 5]
    assert found.link.tolist() == [40, 40]
    assert found.receiver.tolist() == [7, 10]
    total = found.sender + found.link + found.receiver
    assert total.tolist() == [50, 55]


def test_order_on_the_link_does_not_matter() -> None:
    came = list(reversed(seen(43, 143)))
    found = parts(times(0, 100), times(50, 150), seen(3, 103), came)
    assert isinstance(found, Split)
    assert found.link.tolist() == [40, 40]


def test_nothing_that_came_has_no_delay() -> None:
    found = parts(times(0, 100), times(None, None), seen(3, 103), [])
    assert isinstance(found, Split)
    assert not len(found.link)


@pytest.mark.parametrize(
    ("left", "came", "words"),
    [
        (seen(3), seen(43), "1 outer packets of that size left the sender, 2 were sent"),
        ([Mark(3, b"a"), Mark(103, b"a")], [], "look alike"),
        (seen(-5, 103), seen(43, 143), "before its datagram was sent"),
        (seen(3, 103), seen(43), "whose outer packet did not arrive"),
    ],
)
def test_what_cannot_be_reported_has_a_reason(
    left: list[Mark], came: list[Mark], words: str
) -> None:
    found = parts(times(0, 100), times(50, 150), left, came)
    assert isinstance(found, str)
    assert words in found


def test_clocks_may_differ_by_the_error_that_is_known() -> None:
    found = parts(times(0), times(50), seen(-5), seen(43), clock_error_ns=5)
    assert isinstance(found, Split)
    assert found.sender.tolist() == [-5]


def test_only_whole_packets_of_the_length_from_that_end_are_marked() -> None:
    frames: list[WirePacket | OtherFrame] = [
        packet(1, b"a"),
        packet(2, b"b", source="198.18.0.2"),
        packet(3, b"c", ip_bytes=60),
        packet(4, b"d", fragment_id=7),
        OtherFrame(5, 0x0806, "not IP", b"e"),
        packet(6, b"a"),
    ]
    found = marks(frames, sources=CLIENT, ip_bytes=128)
    assert [mark.time_ns for mark in found] == [1, 6]
    assert found[0].key == found[1].key


def test_sizes_are_counted_by_direction() -> None:
    frames: list[WirePacket | OtherFrame] = [
        *(packet(n) for n in range(3)),
        packet(9, ip_bytes=60, fragment_id=7),
        packet(9, source="198.18.0.2"),
        OtherFrame(5, 0x0806, "not IP", b"e"),
    ]
    found = sizes(frames, CLIENT)
    assert (found.packets, found.octets, found.fragments) == (4, 3 * 128 + 60, 1)
    assert found.by_bytes == ((60, 1), (128, 3))
    assert sizes([], CLIENT).packets == 0
