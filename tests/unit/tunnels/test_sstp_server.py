"""Packets and frames of the SSTP server: what it takes apart it did not make itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.tunnels.sstp import server as sstp_server
from tunnelmark.tunnels.sstp.server import (
    CONTROL,
    DATA,
    SstpError,
    control_packet,
    decode_frame,
    encode_frame,
    frame_check,
    packet,
    parse_control,
    split_packets,
)


def test_the_check_of_a_frame_is_that_of_the_standard() -> None:
    # The check value of CRC-16/X-25, which is the FCS of RFC 1662.
    assert frame_check(b"123456789") == 0x906E


@given(st.binary(min_size=1, max_size=200))
def test_frames_survive_the_terminal(frame: bytes) -> None:
    written = encode_frame(frame)
    assert written[:1] == written[-1:] == b"\x7e"
    assert b"\x7e" not in written[1:-1]
    assert decode_frame(written[1:-1]) == frame


@given(st.binary(max_size=60))
def test_control_characters_of_the_link_s_own_protocol_are_escaped(rest: bytes) -> None:
    written = encode_frame(b"\xff\x03\xc0\x21" + rest)
    assert not any(byte < 0x20 for byte in written)
    assert decode_frame(written[1:-1]) == b"\xff\x03\xc0\x21" + rest


@given(st.binary(max_size=60))
def test_damaged_frames_are_dropped_and_never_fail(raw: bytes) -> None:
    frame = decode_frame(raw)
    assert frame == b"" or frame_check(frame).to_bytes(2, "little")
    damaged = bytearray(encode_frame(b"\x21abc")[1:-1])
    damaged[1] ^= 1
    assert decode_frame(bytes(damaged)) == b""


@given(st.lists(st.tuples(st.sampled_from([DATA, CONTROL]), st.binary(max_size=50))), st.data())
def test_packets_are_distinguished_wherever_the_stream_is_cut(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(packet(kind, payload) for kind, payload in sent)
    cut = data.draw(st.integers(0, len(stream)))
    first, rest = split_packets(stream[:cut])
    second, left = split_packets(rest + stream[cut:])
    assert (first + second, left) == (sent, b"")


@pytest.mark.parametrize("head", ["20000008", "10020008", "10000003"])
def test_a_header_that_cannot_be_ends_the_call(head: str) -> None:
    with pytest.raises(SstpError, match=f"sent {head} as the header"):
        split_packets(bytes.fromhex(head))


def test_control_packets_as_the_protocol_shows_them() -> None:
    # MS-SSTP section 4.1: a request for PPP.
    request = bytes.fromhex("1001000e00010001000100060001")
    ((kind, payload),), left = split_packets(request)
    assert (kind, left) == (CONTROL, b"")
    assert parse_control(payload) == (1, {1: b"\0\1"})
    assert control_packet(1, {1: b"\0\1"}) == request
    assert control_packet(9) == bytes.fromhex("1001000800090000")


@given(st.binary(max_size=80))
def test_no_control_packet_makes_it_fail_otherwise(payload: bytes) -> None:
    try:
        kind, attributes = parse_control(payload)
    except SstpError:
        return
    assert 0 <= kind <= 0xFFFF
    assert sum(map(len, attributes.values())) <= len(payload)


def test_a_crypto_binding_of_somebody_in_between_is_refused() -> None:
    call = sstp_server.Call(None, 0, [], b"f" * 32)  # type: ignore[arg-type]
    good = bytes(3) + b"\2" + call.nonce + b"f" * 32 + bytes(32)
    assert "agreed" in call.judge_binding(good)
    with pytest.raises(SstpError, match="man in the middle"):
        call.judge_binding(bytes(3) + b"\2" + call.nonce + b"g" * 32 + bytes(32))
    with pytest.raises(SstpError, match="man in the middle"):
        call.judge_binding(bytes(3) + b"\2" + bytes(32) + b"f" * 32 + bytes(32))
    with pytest.raises(SstpError, match="of 0 bytes"):
        call.judge_binding(b"")


class Client:
    """A stream that holds what a client sent."""

    def __init__(self, sent: bytes) -> None:
        self.sent = sent
        self.answered = b""

    def recv(self, limit: int) -> bytes:
        data, self.sent = self.sent[:limit], self.sent[limit:]
        return data

    def sendall(self, data: bytes) -> None:
        self.answered += data


def test_only_a_request_for_sstp_is_taken() -> None:
    good = f"SSTP_DUPLEX_POST {sstp_server.URI} HTTP/1.1\r\nHost: x\r\n\r\nrest".encode()
    client = Client(good)
    assert sstp_server.accept_request(client) == b"rest"  # type: ignore[arg-type]
    assert client.answered.startswith(b"HTTP/1.1 200 OK\r\n")
    for bad, words in (
        (b"GET / HTTP/1.1\r\n\r\n", "is not SSTP"),
        (b"x" * 20000, "more than 8192 bytes"),
        (b"SSTP", "left within"),
    ):
        with pytest.raises(SstpError, match=words):
            sstp_server.accept_request(Client(bad))  # type: ignore[arg-type]
