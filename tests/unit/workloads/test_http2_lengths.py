"""Lengths of HTTP/2: beside what was seen on the wire of curl 7.88.1 and nginx 1.22.1."""

import pytest

from tunnelmark.workloads import curl, http2_lengths

PLACE = "https://198.18.0.2:7700"
NEW, OLD = curl.Tls("1.3", None), curl.Tls("1.2", None)


def urls(count: int) -> list[str]:
    return [f"{PLACE}/small-{number:03}" for number in range(1, count + 1)]


def test_handshakes_are_as_long_as_on_the_wire() -> None:
    hello, finished = http2_lengths.opening(NEW, ["198.18.0.2"])
    assert (hello.request, hello.reply) == ((243,), (721,))
    assert (finished.request, finished.reply) == ((80,), ())
    hello, finished = http2_lengths.opening(OLD, ["198.18.0.2"])
    assert (hello.request, hello.reply) == ((202,), (560,))
    assert (finished.request, finished.reply) == ((93,), (51 + 69,))


def test_requests_are_as_long_as_on_the_wire() -> None:
    """``accept`` and the name of the host are in the first one alone."""
    first, *rest = http2_lengths.fetch(urls(9), [8_000] * 9, NEW)
    assert first.request == (86, 70)
    assert {one.request for one in rest} == {(45,)}
    first, second = http2_lengths.fetch(urls(2), [30_000, 8_000], OLD)
    assert (first.request, second.request) == ((93, 77), (52,))
    (local,) = http2_lengths.fetch(["https://127.0.0.1:7700/small-001"], [8_000], NEW)
    assert local.request == (86, 69)


def test_replies_are_as_long_as_on_the_wire() -> None:
    first, second, third = http2_lengths.fetch(urls(3), [8_000, 8_000, 200_000], NEW)
    assert first.reply == (198, 8_031)
    assert second.reply == (8_158,)
    # 25 frames and the head in 13 records; on a line that was never full nginx had 17, with 200,729
    # bytes.
    (reply,) = third.reply
    assert reply == (9 + 121) + 200_000 + 25 * 9 + 13 * 22
    assert 200_729 - reply == 4 * 22
    (document,) = http2_lengths.fetch(urls(1), [30_000], NEW)
    assert document.reply == (199, 30_080)


def test_a_page_is_as_long_as_on_the_wire() -> None:
    """Six small objects and three large ones, at 8 Mbit/s: 650,964 bytes of the server's."""
    found = http2_lengths.fetch(urls(9), [8_000] * 6 + [200_000] * 3, NEW)
    assert sum(sum(one.reply) for one in found) == pytest.approx(198 + 650_766, abs=22)


def test_all_but_the_first_request_follow_without_a_reply_up_to_a_hundred() -> None:
    found = http2_lengths.fetch(urls(200), [1] * 200, NEW)
    assert [one.ahead for one in found] == [0, *[99] * 199]
