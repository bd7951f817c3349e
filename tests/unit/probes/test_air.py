"""Captures on air: a frame shows what protects it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.air import AIR_HOUSEKEEPING, AIR_TYPES, AIR_UNKNOWN
from tunnelmark.model.errors import LabError
from tunnelmark.probes.air import read_air

CLIENT = bytes.fromhex("02746d002000")
AP = bytes.fromhex("02746d001000")


def pcap(frames: list[bytes], link_type: int = 127) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type)
    return head + b"".join(
        struct.pack("<IIII", 1, number, len(frame), len(frame)) + frame
        for number, frame in enumerate(frames)
    )


def radiotap(mpdu: bytes, fields: bytes = b"", present: int = 0) -> bytes:
    return struct.pack("<BBHI", 0, 0, 8 + len(fields), present) + fields + mpdu


def data(
    body: bytes, *, protected: bool = False, qos: bool = False, sender: bytes = CLIENT
) -> bytes:
    control = bytes([0x88 if qos else 0x08, 0x41 if protected else 0x01])
    header = control + bytes(2) + AP + sender + AP + bytes(2)
    return header + (bytes(2) if qos else b"") + body


def ccmp(number: int) -> bytes:
    low = number & 0xFF, number >> 8 & 0xFF
    return bytes([*low, 0, 0x20, 0, 0, 0, 0]) + b"secret" * 5


def tkip(number: int) -> bytes:
    low, high = number & 0xFF, number >> 8 & 0xFF
    return bytes([high, (high | 0x20) & 0x7F, low, 0x20, 0, 0, 0, 0]) + b"secret" * 5


def types(frames: list[bytes]) -> list[int]:
    return [frame.ether_type for frame in read_air(pcap([radiotap(one) for one in frames]))]


def test_open_data_is_whole_with_its_sender_and_room_for_the_fcs() -> None:
    mpdu = data(b"\xaa\xaa\x03\0\0\0\x08\0" + b"readable")
    (frame,) = read_air(pcap([radiotap(mpdu)]))
    assert frame.ether_type == AIR_TYPES["open"]
    assert frame.payload == mpdu + bytes(4)
    assert frame.source == "02:74:6d:00:20:00"


@pytest.mark.parametrize("qos", [False, True])
@pytest.mark.parametrize("first", [1, 0x1FF0, 0xFFF0])
def test_each_cipher_is_reported_by_its_header(qos: bool, first: int) -> None:
    numbers = range(first, first + 300)
    for body, name in ((ccmp, "ccmp"), (tkip, "tkip")):
        found = types([data(body(n), protected=True, qos=qos) for n in numbers])
        # Numbers by chance fit another cipher as well; the station's other frames decide.
        assert set(found) == {AIR_TYPES[name]}  # type: ignore[index]
    wep = [data(bytes([n & 255, 7, 9, 0]) + b"secret", protected=True, qos=qos) for n in numbers]
    assert set(types(wep)) == {AIR_TYPES["wep"]}


def test_a_frame_under_another_cipher_than_its_stations_stands_out() -> None:
    frames = [data(ccmp(n), protected=True) for n in range(50)]
    frames += [data(bytes([1, 2, 3, 0x20]) + b"secret", protected=True), data(b"plain text here")]
    assert types(frames)[-2:] == [AIR_UNKNOWN, AIR_TYPES["open"]]
    # Each station has its own.
    other = [data(tkip(n), protected=True, sender=AP) for n in range(50)]
    assert set(types(frames[:50] + other)) == {AIR_TYPES["ccmp"], AIR_TYPES["tkip"]}


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        (b"\x80\0", AIR_HOUSEKEEPING),  # beacon
        (b"\xb4\0", AIR_HOUSEKEEPING),  # RTS
        (b"\x48\x01", AIR_HOUSEKEEPING),  # null
        (b"\xc8\x01", AIR_HOUSEKEEPING),  # QoS null
        (b"\x08\x01", AIR_TYPES["open"]),
        (b"\x09\x01", AIR_UNKNOWN),  # version 1
    ],
)
def test_only_data_with_a_body_is_data(control: bytes, kind: int) -> None:
    frame = control + bytes(2) + AP + CLIENT + AP + bytes(4) + b"body"
    assert types([frame]) == [kind]


def test_an_acknowledgement_has_no_sender() -> None:
    (frame,) = read_air(pcap([radiotap(b"\xd4\0\0\0" + CLIENT)]))
    assert (frame.ether_type, frame.source) == (AIR_HOUSEKEEPING, "")


def test_an_fcs_that_is_there_is_not_counted_twice() -> None:
    mpdu = data(b"plain text here")
    # TSFT is aligned to 8 bytes behind the first word, flags follow it.
    with_fcs = radiotap(mpdu + b"\1\2\3\4", bytes(8) + b"\x10", present=3)
    without = radiotap(mpdu, bytes(8) + b"\0", present=3)
    alone = radiotap(mpdu + b"\1\2\3\4", b"\x10", present=2)
    for frame in read_air(pcap([with_fcs, without, alone])):
        assert frame.payload == mpdu + bytes(4)


def test_what_has_no_radiotap_header_is_unknown() -> None:
    for frame in (b"", b"\0" * 7, struct.pack("<BBHI", 0, 0, 200, 0), b"\1" + bytes(30)):
        assert [one.ether_type for one in read_air(pcap([frame]))] == [AIR_UNKNOWN]


def test_another_link_layer_is_refused_by_name() -> None:
    with pytest.raises(LabError, match=r"x: link type 1, only radiotap \(127\)"):
        read_air(pcap([], link_type=1), place="x")


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_nothing_on_air_breaks_it(frames: list[bytes]) -> None:
    read = read_air(pcap(frames))
    assert len(read) == len(frames)
    assert all(
        one.ether_type in {*AIR_TYPES.values(), AIR_HOUSEKEEPING, AIR_UNKNOWN} for one in read
    )
