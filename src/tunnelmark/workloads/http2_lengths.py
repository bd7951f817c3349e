"""How long the frames of curl 7.88 and nginx 1.22 are, with nghttp2 1.52 and OpenSSL 3.0; pure.

Frames are those of RFC 9113, heads those of RFC 7541. Which frames there are, and in which records
of TLS they go, was seen on the wire (docs/simulation.md). Windows of flow control never hold nginx
back: curl opens each stream and the connection for 32 MiB.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tunnelmark.workloads import curl, http_lengths
from tunnelmark.workloads.exchanges import Exchange, Turns

MOST_STREAMS: Final = 100
"""Requests at a time in one connection, what browsers and nginx keep to."""
_FRAME_BYTES: Final = 9
_DATA_BYTES: Final = 8 << 10
"""What a frame of nginx carries (``http2_chunk_size``)."""
_TURN_FRAMES: Final = 8
"""So many a stream sends before the next one has its turn: two buffers (``output_buffers``)."""
_PREFACE_BYTES: Final = 24 + (_FRAME_BYTES + 3 * 6) + (_FRAME_BYTES + 4)
"""Of the client: three settings, and a window for the connection."""
_SETTINGS_BYTES: Final = (_FRAME_BYTES + 3 * 6) + (_FRAME_BYTES + 4)
"""Of the server, likewise."""
_SETTLED_BYTES: Final = _FRAME_BYTES
"""It has the client's settings."""
_HELLO_BYTES: Final = len("h2") + 1
"""What the client offers more than HTTP/1.1."""
_CHOSEN_BYTES: Final = len("h2") - len("http/1.1")
"""What the server's choice is longer."""

_BITS: Final = {
    character: bits
    for bits, characters in {
        5: "012aceiost",
        6: " %-./3456789=A_bdfghlmnpru",
        7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
        8: "&*,;XZ",
        10: '"',
        13: "[]",
    }.items()
    for character in characters
}
"""Of each character that is in our addresses (RFC 7541 appendix B)."""
_REPLY_BYTES: Final = 102
"""Status, server, dates, type, ranges: alike in all heads but for the digits of the dates."""
_ETAG_BITS: Final = 2 * _BITS['"'] + _BITS["-"] + 46
"""Without the size of the file: quotes, and the time of the file in eight digits."""


def fetch(urls: Sequence[str], sizes_bytes: Sequence[int], tls: curl.Tls) -> tuple[Exchange, ...]:
    """Return requests of one connection and their replies, which are not in records yet."""
    found = []
    for number, (url, size_bytes) in enumerate(zip(urls, sizes_bytes, strict=True)):
        request = http_lengths.sealed(_FRAME_BYTES + _request_head(url, first=not number), tls)
        head = _FRAME_BYTES + _reply_head(size_bytes)
        data = size_bytes + -(-size_bytes // _DATA_BYTES) * _FRAME_BYTES
        # curl has to know that the server speaks HTTP/2 before it adds to the first request.
        ahead = MOST_STREAMS - 1 if number else 0
        found.append(Exchange((request,), (head + data,), ahead=ahead))
    return tuple(found)


def turns(tls: curl.Tls) -> Turns:
    """Return how replies share a connection.

    nginx gathers what its streams have to send, whichever has it, until a record is full.
    """
    turn_bytes = _TURN_FRAMES * (_FRAME_BYTES + _DATA_BYTES)
    return Turns(turn_bytes, http_lengths.RECORD_BYTES, http_lengths.seal_bytes(tls))


def opening(tls: curl.Tls, addresses: Sequence[str]) -> tuple[Exchange, ...]:
    """Return the handshake of TLS with a server that has such addresses, HTTP/2 agreed in it.

    Behind it both ends say what they want of the connection, and wait for nothing.
    """
    hello, finished = http_lengths.opening(tls, addresses)
    settings = http_lengths.sealed(_SETTINGS_BYTES, tls)
    # With TLS 1.2 they leave with the server's end of the handshake.
    ends = (*finished.reply, settings) if finished.goes_on else (finished.reply[0] + settings,)
    preface = http_lengths.sealed(_PREFACE_BYTES, tls)
    settled = http_lengths.sealed(_SETTLED_BYTES, tls)
    return (
        Exchange((hello.request[0] + _HELLO_BYTES,), (hello.reply[0] + _CHOSEN_BYTES,)),
        replace(finished, reply=ends),
        Exchange((preface,), (settled,), goes_on=True),
    )


def _request_head(url: str, *, first: bool) -> int:
    """Return the bytes of a head: all but the path is in the table behind the first one."""
    host, _, name = url.partition("://")[2].partition("/")
    # Method, scheme, and the path by the index of its name.
    least = 1 + 1 + (1 + _text(f"/{name}"))
    if not first:
        return least + 3
    return least + (1 + _text(host)) + (1 + _text("curl/7.88.1")) + (1 + _text("*/*"))


def _reply_head(size_bytes: int) -> int:
    etag_bits = _ETAG_BITS + sum(_BITS[digit] for digit in f"{size_bytes:x}")
    return _REPLY_BYTES + len(str(size_bytes)) + -(-etag_bits // 8)


def _text(words: str) -> int:
    """Return the bytes of a text of up to 126, with its length."""
    packed = -(-sum(_BITS[character] for character in words) // 8)
    return 1 + min(len(words), packed)
