"""Lengths of HTTP/2: beside what was seen on the wire of curl 7.88.1 and nginx 1.22.1."""

import pytest

from tunnelmark.workloads import curl, http2_lengths
from tunnelmark.workloads.exchanges import Turns

PLACE = "https://198.18.0.2:7700"
NEW, OLD = curl.Tls("1.3", None), curl.Tls("1.2", None)


def urls(count: int) -> list[str]:
    return [f"{PLACE}/small-{number:03}" for number in range(1, count + 1)]


def test_handshakes_are_as_long_as_on_the_wire() -> None:
    hello, finished, preface = http2_lengths.opening(NEW, ["198.18.0.2"])
    assert (hello.request, hello.reply) == ((243,), (721,))
    # Tickets, settings; then the client's are known. Each left by itself.
    assert (finished.request, finished.reply) == ((80,), (79, 79, 62))
    assert (preface.request, preface.reply) == ((86,), (31,))
    assert [one.goes_on for one in (hello, finished, preface)] == [False, True, True]
    hello, finished, preface = http2_lengths.opening(OLD, ["198.18.0.2"])
    assert (hello.request, hello.reply) == ((202,), (560,))
    assert (finished.request, finished.reply) == ((93,), (51 + 69,))
    assert (preface.request, preface.reply) == ((93,), (38,))
    assert [one.goes_on for one in (hello, finished, preface)] == [False, False, True]


def test_requests_are_as_long_as_on_the_wire() -> None:
    """``accept`` and the name of the host are in the first one alone."""
    first, *rest = http2_lengths.fetch(urls(9), [8_000] * 9, NEW)
    assert first.request == (70,)
    assert {one.request for one in rest} == {(45,)}
    first, second = http2_lengths.fetch(urls(2), [30_000, 8_000], OLD)
    assert (first.request, second.request) == ((77,), (52,))
    (local,) = http2_lengths.fetch(["https://127.0.0.1:7700/small-001"], [8_000], NEW)
    assert local.request == (69,)


def test_replies_are_as_long_as_on_the_wire() -> None:
    first, second, third = http2_lengths.fetch(urls(3), [8_000, 8_000, 200_000], NEW)
    # A small object that had a record of its own was 8,158 bytes long.
    assert first.reply == second.reply == (8_158 - 22,)
    # 25 frames and the head.
    assert third.reply == ((9 + 121) + 200_000 + 25 * 9,)
    (document,) = http2_lengths.fetch(urls(1), [30_000], NEW)
    # In two records it was 30,208 bytes long.
    assert document.reply == (30_208 - 2 * 22,)


@pytest.mark.parametrize(("tls", "seal"), [(NEW, 22), (OLD, 29)])
def test_a_turn_is_two_buffers_of_nginx_and_a_record_is_full(tls: curl.Tls, seal: int) -> None:
    assert http2_lengths.turns(tls) == Turns(65_536 + 8 * 9, 16_384, seal)


def test_a_page_is_as_long_as_on_the_wire() -> None:
    """Six small objects and three large ones, at 8 Mbit/s: 650,964 bytes of the server's."""
    found = http2_lengths.fetch(urls(9), [8_000] * 6 + [200_000] * 3, NEW)
    plain = sum(sum(one.reply) for one in found)
    # Settings were in front. Small objects had records of their own, the others shared them.
    records, rest = divmod(650_964 - (62 + 31) - plain, 22)
    assert rest == 0
    assert -(-plain // 16_384) <= records <= -(-plain // 16_384) + 6


def test_all_but_the_first_request_follow_without_a_reply_up_to_a_hundred() -> None:
    found = http2_lengths.fetch(urls(200), [1] * 200, NEW)
    assert [one.ahead for one in found] == [0, *[99] * 199]
