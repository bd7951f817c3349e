"""Lengths of HTTP and TLS: beside what was seen on the wire of curl 7.88.1 and nginx 1.22.1."""

import pytest

from tunnelmark.workloads import curl, http_lengths
from tunnelmark.workloads.exchanges import Exchange

PLACE = "127.0.0.1:7700"


@pytest.mark.parametrize(
    ("version", "get", "got", "put", "created"),
    [
        (None, (86,), (256, 30_000), (119, 100_000), 177),
        # Records of 16384 bytes: 11 segments of 1448 and 478 bytes, then 9 and 862.
        ("1.3", (108,), (11 * 1448 + 478 + 9 * 1448 + 862,), (141, 100_000 + 7 * 22), 200),
        ("1.2", (115,), (11 * 1448 + 485 + 9 * 1448 + 869,), (148, 100_000 + 7 * 29), 207),
    ],
)
def test_requests_and_replies_are_as_long_as_on_the_wire(
    version: curl.TlsVersion | None,
    get: tuple[int, ...],
    got: tuple[int, ...],
    put: tuple[int, ...],
    created: int,
) -> None:
    tls = None if version is None else curl.Tls(version, None)
    scheme = "http" if tls is None else "https"
    url = f"{scheme}://{PLACE}/document"
    # The first record carries 16384 bytes, head included: nothing can be read before its end.
    readable = {None: 0, "1.3": 16_384 + 22, "1.2": 16_384 + 29}[version]
    found = http_lengths.fetch(url, 30_000, tls=tls, close=False)
    assert found == Exchange(get, got, readable_bytes=readable)
    url = f"{scheme}://{PLACE}/up/photo-0001.jpg"
    found = http_lengths.leave(url, 100_000, tls=tls, close=False)
    assert found == Exchange(put, (created,))


def test_a_connection_for_each_file_says_so() -> None:
    url = f"http://{PLACE}/document"
    kept, closed = (
        http_lengths.fetch(url, 30_000, tls=None, close=close) for close in (False, True)
    )
    assert closed.request[0] - kept.request[0] == len("Connection: close\r\n")
    assert kept.reply[0] - closed.reply[0] == len("keep-alive") - len("close")


def test_handshakes_are_as_long_as_on_the_wire() -> None:
    assert http_lengths.opening(None, ["127.0.0.1"]) == ()
    # Two tickets, in records of their own, that the client does not wait for.
    newer = (Exchange((240,), (727,)), Exchange((80,), (79, 79), goes_on=True))
    assert http_lengths.opening(curl.Tls("1.3", None), ["127.0.0.1"]) == newer
    older = (Exchange((199,), (566,)), Exchange((93,), (51,)))
    assert http_lengths.opening(curl.Tls("1.2", None), ["127.0.0.1"]) == older
    (hello, _) = http_lengths.opening(curl.Tls("1.3", None), ["fd00::2", "198.19.0.2", "fd00::2"])
    assert hello.reply == (727 + 18,)


def test_a_cipher_without_an_explicit_nonce_adds_less() -> None:
    tls = curl.Tls("1.2", "ECDHE-ECDSA-CHACHA20-POLY1305")
    url = f"https://{PLACE}/document"
    found = http_lengths.fetch(url, 30_000, tls=tls, close=False)
    assert found.request == (86 + 21,)
