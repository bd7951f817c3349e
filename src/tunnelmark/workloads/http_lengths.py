"""How long the messages of curl 7.88 and nginx 1.22 are, with TLS of OpenSSL 3.0; pure.

Lengths of heads follow from their text. Those of handshakes were seen on the wire, for the
certificate that ``web_server`` makes (docs/simulation.md).
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from tunnelmark.workloads import curl, pace
from tunnelmark.workloads.exchanges import Exchange

_DATE_BYTES: Final = len("Mon, 23 Nov 2026 04:34:19 GMT")
_ETAG_BYTES: Final = len('"6b03c249-"')
"""Around the length of the file in hexadecimal."""
RECORD_BYTES: Final = 1 << 14
"""What a record of TLS carries (RFC 8446 section 5.1), and nginx gathers."""
_SEAL_BYTES: Final = {"1.2": 5 + 8 + 16, "1.3": 5 + 1 + 16}
"""Header, explicit nonce or type, tag (RFC 5288, RFC 8446 section 5.2)."""
_CHACHA_SEAL_BYTES: Final = 5 + 16
"""With TLS 1.2 there is no explicit nonce (RFC 7905)."""
_CERTIFIED_BYTES: Final = {4: 6, 16: 18}
"""An address in the certificate, by its length."""
_CLIENT_HELLO_BYTES: Final = {"1.2": 199, "1.3": 240}
_SERVER_FLIGHT_BYTES: Final = {"1.2": 560, "1.3": 721}
"""Without the addresses. Signatures differ by a few bytes from one handshake to the next."""
_FINISHED_BYTES: Final = {"1.2": 93, "1.3": 80}
_ANSWER_BYTES: Final = 51
"""The server's end of the handshake of TLS 1.2."""
_TICKETS_BYTES: Final = (79, 79)
"""What OpenSSL sends behind a handshake of TLS 1.3, though nginx's tickets are off: each names a
session by its number, in a record of its own."""


def fetch(
    url: str,
    size_bytes: int,
    *,
    tls: curl.Tls | None,
    close: bool,
    pace_bytes_s: int | None = None,
) -> Exchange:
    """Return a GET and its reply, whose head nginx sends before the file."""
    head = _reply_head(size_bytes, close=close)
    request = (sealed(_request_head("GET", url, close=close), tls),)
    if pace_bytes_s is not None:
        paced = pace.by_nginx(head + size_bytes, pace_bytes_s, tls=tls is not None)
        reply = tuple(sealed(piece, tls) for piece in paced.pieces)
        readable = _readable(paced.pieces[0], tls)
        return Exchange(request, reply, reply_due_ns=paced.due_ns, readable_bytes=readable)
    if tls is None:
        return Exchange(request, (head, size_bytes))
    reply = (sealed(head + size_bytes, tls),)
    return Exchange(request, reply, readable_bytes=_readable(head + size_bytes, tls))


def leave(
    url: str,
    size_bytes: int,
    *,
    tls: curl.Tls | None,
    close: bool,
    pace_bytes_s: int | None = None,
) -> Exchange:
    """Return a PUT and its reply."""
    head = _request_head("PUT", url, close=close) + len(f"Content-Length: {size_bytes}\r\n")
    reply = _text(
        "HTTP/1.1 201 Created",
        "Server: nginx/1.22.1",
        f"Date: {'-' * _DATE_BYTES}",
        "Content-Length: 0",
        f"Location: {url}",
        f"Connection: {'close' if close else 'keep-alive'}",
    )
    answer = (sealed(reply, tls),)
    if pace_bytes_s is not None:
        paced = pace.by_curl(size_bytes, pace_bytes_s)
        pieces = (sealed(head, tls), *(sealed(piece, tls) for piece in paced.pieces))
        return Exchange(pieces, answer, request_due_ns=(0, *paced.due_ns))
    return Exchange((sealed(head, tls), sealed(size_bytes, tls)), answer)


def opening(tls: curl.Tls | None, addresses: Sequence[str]) -> tuple[Exchange, ...]:
    """Return the handshake of TLS with a server that has such addresses, none without TLS.

    That of TLS 1.3 ends with what the client sends before its first request (RFC 8446 section 2),
    and what the server sends then is not waited for.
    """
    if tls is None:
        return ()
    certified = [_CERTIFIED_BYTES[len(ipaddress.ip_address(one).packed)] for one in set(addresses)]
    flight = _SERVER_FLIGHT_BYTES[tls.version] + sum(certified)
    old = tls.version == "1.2"
    answer = (_ANSWER_BYTES,) if old else _TICKETS_BYTES
    return (
        Exchange((_CLIENT_HELLO_BYTES[tls.version],), (flight,)),
        Exchange((_FINISHED_BYTES[tls.version],), answer, goes_on=not old),
    )


def sealed(payload_bytes: int, tls: curl.Tls | None) -> int:
    """Return what the records of TLS that carry so much are together; without TLS what it is."""
    if tls is None:
        return payload_bytes
    return payload_bytes + -(-payload_bytes // RECORD_BYTES) * seal_bytes(tls)


def seal_bytes(tls: curl.Tls) -> int:
    """Return what a record of TLS adds."""
    chacha = tls.version == "1.2" and tls.cipher is not None and "CHACHA20" in tls.cipher
    return _CHACHA_SEAL_BYTES if chacha else _SEAL_BYTES[tls.version]


def _readable(payload_bytes: int, tls: curl.Tls | None) -> int:
    """Return how much of a reply is its first record, which can be read when all of it is there."""
    return 0 if tls is None else sealed(min(payload_bytes, RECORD_BYTES), tls)


def _request_head(verb: str, url: str, *, close: bool) -> int:
    host, _, name = url.partition("://")[2].partition("/")
    lines = [f"{verb} /{name} HTTP/1.1", f"Host: {host}", "User-Agent: curl/7.88.1", "Accept: */*"]
    return _text(*lines, *(["Connection: close"] if close else []))


def _reply_head(size_bytes: int, *, close: bool) -> int:
    return _text(
        "HTTP/1.1 200 OK",
        "Server: nginx/1.22.1",
        f"Date: {'-' * _DATE_BYTES}",
        "Content-Type: application/octet-stream",
        f"Content-Length: {size_bytes}",
        f"Last-Modified: {'-' * _DATE_BYTES}",
        f"Connection: {'close' if close else 'keep-alive'}",
        f"ETag: {'-' * _ETAG_BYTES}{size_bytes:x}",
        "Accept-Ranges: bytes",
    )


def _text(*lines: str) -> int:
    """Return the bytes of a head: its lines, and an empty one."""
    return sum(len(line) + 2 for line in lines) + 2
