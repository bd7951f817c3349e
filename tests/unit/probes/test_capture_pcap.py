"""The pcap reader: strict about the file, never failing on a packet, and equal to dpkt's view."""

import io
import struct

import dpkt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tunnelmark.model.errors import LabError
from tunnelmark.probes.pcap import OtherFrame, WirePacket, parse_frame, read_pcap

CLIENT, SERVER = bytes((198, 18, 0, 1)), bytes((198, 18, 0, 2))
CLIENT6, SERVER6 = (
    bytes.fromhex("fd00" + "00" * 13 + "01"),
    bytes.fromhex("fd00" + "00" * 13 + "02"),
)
PORTS = st.integers(0, 65535)


def pcap(frames: list[bytes], magic: int = 0xA1B23C4D, order: str = "<") -> bytes:
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, 1)
    for number, frame in enumerate(frames):
        data += struct.pack(f"{order}IIII", 1_700_000_000, number, len(frame), len(frame)) + frame
    return data


def ethernet(kind: int, packet: bytes) -> bytes:
    return bytes(12) + kind.to_bytes(2, "big") + packet


def ipv4(protocol: int, data: bytes, *, identification: int = 0, field: int = 0) -> bytes:
    header = struct.pack(
        ">BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(data),
        identification,
        field,
        64,
        protocol,
        0,
        CLIENT,
        SERVER,
    )
    return ethernet(0x0800, header + data)


def ipv6(protocol: int, data: bytes) -> bytes:
    return ethernet(
        0x86DD,
        struct.pack(">IHBB16s16s", 6 << 28, len(data), protocol, 64, CLIENT6, SERVER6) + data,
    )


def udp(source: int, destination: int, data: bytes) -> bytes:
    return struct.pack(">HHHH", source, destination, 8 + len(data), 0) + data


def only(frame: bytes) -> WirePacket:
    packet = parse_frame(5, frame)
    assert isinstance(packet, WirePacket)
    return packet


@given(
    source=PORTS, destination=PORTS, data=st.binary(max_size=200), padding=st.binary(max_size=20)
)
def test_udp_over_ipv4(source: int, destination: int, data: bytes, padding: bytes) -> None:
    packet = only(ipv4(17, udp(source, destination, data)) + padding)
    assert packet == WirePacket(
        time_ns=5, ip_version=4, ip_bytes=28 + len(data), protocol=17,
        source="198.18.0.1", destination="198.18.0.2", source_port=source,
        destination_port=destination, fragment_id=None, fragment_offset_bytes=0,
        more_fragments=False, payload=data,
    )  # fmt: skip


@given(source=PORTS, destination=PORTS, data=st.binary(max_size=200))
def test_udp_over_ipv6_behind_extension_headers(source: int, destination: int, data: bytes) -> None:
    options = bytes((17, 0, 1, 4, 0, 0, 0, 0))
    packet = only(ipv6(60, options + udp(source, destination, data)))
    assert (packet.ip_version, packet.protocol, packet.ip_bytes) == (6, 17, 56 + len(data))
    assert (packet.source_port, packet.destination_port) == (source, destination)
    assert (packet.source, packet.destination) == ("fd00::1", "fd00::2")
    assert packet.payload == data


def test_fragments_over_ipv4_share_their_identification_and_only_the_first_has_ports() -> None:
    first = only(ipv4(17, udp(1, 2, bytes(1472)), identification=77, field=0x2000))
    last = only(ipv4(17, b"rest", identification=77, field=1480 // 8))
    assert (first.fragment_id, first.fragment_offset_bytes, first.more_fragments) == (77, 0, True)
    assert (first.source_port, first.destination_port) == (1, 2)
    assert (last.fragment_id, last.fragment_offset_bytes, last.more_fragments) == (77, 1480, False)
    assert (last.source_port, last.payload, last.fragment) == (None, b"rest", True)


def test_fragments_over_ipv6() -> None:
    first = only(ipv6(44, struct.pack(">BBHI", 17, 0, 1, 99) + udp(1, 2, b"x" * 40)))
    last = only(ipv6(44, struct.pack(">BBHI", 17, 0, 48, 99) + b"rest"))
    assert (first.protocol, first.fragment_id, first.more_fragments, first.source_port) == (
        17,
        99,
        True,
        1,
    )
    assert (last.protocol, last.fragment_id, last.fragment_offset_bytes) == (17, 99, 48)
    assert (last.more_fragments, last.source_port, last.payload) == (False, None, b"rest")


def test_tcp_with_options_and_with_a_nonsense_data_offset() -> None:
    header = struct.pack(">HHIIBBHHH", 10, 20, 0, 0, 6 << 4, 0, 0, 0, 0)
    assert only(ipv4(6, header + b"OPTSdata")).payload == b"data"
    lying = header[:12] + bytes((15 << 4,)) + header[13:]
    packet = only(ipv4(6, lying + b"hidden?"))
    assert (packet.source_port, packet.payload) == (10, b"hidden?")


def test_vlan_tags_are_passed_over() -> None:
    inner = ipv4(17, udp(1, 2, b"x"))
    tagged = inner[:12] + bytes.fromhex("88a80001") + bytes.fromhex("81000002") + inner[12:]
    assert only(tagged).payload == b"x"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"short", "5 bytes are not an Ethernet frame"),
        (ethernet(0x0806, bytes(28)), "not IP"),
        (ethernet(0x0800, bytes(10)), "IPv4 header of 10 bytes, at least 20"),
        (
            ethernet(0x0800, bytes((0x65,)) + bytes(30)),
            "IPv4 with version 6, header of 20 bytes, length 0",
        ),
        (ipv4(17, bytes(50))[:-1], "IPv4 length 70, 69 bytes captured"),
        (ethernet(0x86DD, bytes(39)), "39 bytes are not an IPv6 header"),
        (ipv6(17, bytes(50))[:-1], "IPv6 length 90, 89 bytes captured"),
        (ipv6(0, bytes(4)), "IPv6 extension header 0 is cut off at byte 44"),
        (ipv6(0, bytes((17, 9)) + bytes(20)), "IPv6 extension header 0 of 80 bytes is too long"),
    ],
)
def test_what_is_no_ip_packet_says_why(frame: bytes, reason: str) -> None:
    other = parse_frame(5, frame)
    assert isinstance(other, OtherFrame)
    assert other.reason == reason


@given(st.binary(max_size=300))
@example(ethernet(0x0800, b"\x45" + b"\xff" * 60))
@example(ethernet(0x86DD, b"\x60" + b"\x00" * 60))
def test_no_frame_breaks_the_parser_or_loses_its_payload(frame: bytes) -> None:
    packet = parse_frame(0, frame)
    assert packet.payload in frame
    if isinstance(packet, WirePacket):
        assert len(packet.payload) <= packet.ip_bytes <= len(frame) - 14


@given(
    kind=st.sampled_from([0x0800, 0x86DD]),
    head=st.sampled_from([0x45, 0x46, 0x4F, 0x60]),
    body=st.binary(min_size=40, max_size=120),
)
def test_no_header_breaks_the_parser(kind: int, head: int, body: bytes) -> None:
    packet = parse_frame(0, ethernet(kind, bytes((head,)) + body))
    assert packet.payload in body or packet.payload == bytes((head,)) + body


@given(data=st.binary(min_size=1, max_size=400), protocol=st.sampled_from([1, 2, 17, 50]))
def test_dpkt_sees_the_same_in_a_well_formed_packet(data: bytes, protocol: int) -> None:
    frame = ipv4(protocol, udp(1000, 2000, data) if protocol == 17 else data)
    theirs = dpkt.ethernet.Ethernet(frame).data
    ours = only(frame)
    assert (ours.ip_bytes, ours.protocol) == (theirs.len, theirs.p)
    if protocol == 17:
        assert (ours.source_port, ours.payload) == (theirs.data.sport, bytes(theirs.data.data))


@given(
    frames=st.lists(st.binary(max_size=100), max_size=10),
    kind=st.sampled_from([(0xA1B23C4D, 1), (0xA1B2C3D4, 1000)]),
    order=st.sampled_from(["<", ">"]),
)
def test_every_frame_of_a_file_comes_out_in_order_with_its_time(
    frames: list[bytes], kind: tuple[int, int], order: str
) -> None:
    magic, unit_ns = kind
    read = read_pcap(pcap(frames, magic, order))
    assert [frame.time_ns for frame in read] == [
        1_700_000_000 * 10**9 + number * unit_ns for number in range(len(frames))
    ]
    assert [frame.payload for frame in read] == [parse_frame(0, frame).payload for frame in frames]


def test_a_file_that_dpkt_wrote_is_read() -> None:
    file = io.BytesIO()
    frame = ipv4(17, udp(1, 2, b"hello"))
    dpkt.pcap.Writer(file, nano=True).writepkt(frame, ts=12.5)
    (packet,) = read_pcap(file.getvalue())
    assert (packet.time_ns, packet.payload) == (12_500_000_000, b"hello")


@given(cut=st.integers(1, 200))
def test_a_file_that_was_cut_off_is_an_error_unless_between_two_packets(cut: int) -> None:
    frames = [ipv4(17, udp(1, 2, bytes(20))), ipv4(17, udp(3, 4, bytes(30)))]
    whole = pcap(frames)
    ends = {24, 24 + 16 + len(frames[0]), len(whole)}
    if len(whole) - cut in ends:
        assert len(read_pcap(whole[:-cut])) < 2
    else:
        with pytest.raises(LabError, match="capture: "):
            read_pcap(whole[:-cut])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for candidate in (data, pcap([]) + data):
        try:
            frames = read_pcap(candidate, max_packets=5)
        except LabError as error:
            assert str(error).startswith("capture: ")  # noqa: PT017 - both ends are allowed
        else:
            assert len(frames) <= 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\x0a\x0d\x0d\x0a" + bytes(30),
            "capture: starts with 0a0d0d0a, which is not a pcap file",
        ),
        (
            pcap([])[:4] + bytes((9, 0)) + pcap([])[6:],
            "capture: pcap version 9.4, only 2.4 is known",
        ),
        (pcap([])[:20] + bytes((113, 0, 0, 0)), "capture: link type 113, only Ethernet (1)"),
        (pcap([bytes(20)] * 3), "capture: more than 2 packets"),
        (
            pcap([]) + struct.pack("<IIII", 1, 10**9, 0, 0),
            "capture: packet 0 has 1000000000 as fraction of a second",
        ),
        (
            pcap([]) + struct.pack("<IIII", 1, 0, 300_000, 300_000),
            "capture: packet 0 has 300000 bytes captured of 300000, limit 262144",
        ),
        (
            pcap([]) + struct.pack("<IIII", 1, 0, 20, 10) + bytes(20),
            "capture: packet 0 has 20 bytes captured of 10, limit 262144",
        ),
    ],
)
def test_a_damaged_file_is_named_with_value_and_limit(data: bytes, message: str) -> None:
    with pytest.raises(LabError) as caught:
        read_pcap(data, max_packets=2)
    assert str(caught.value) == message
