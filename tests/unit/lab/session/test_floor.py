"""What a link is set to take of a packet, which is not part of the instrument's floor."""

from dataclasses import replace

import pytest

from tunnelmark.engine.link import (
    Change,
    DelayVariation,
    Direction,
    HoldBack,
    LinkSpec,
    Queue,
    SharedLinkSpec,
)
from tunnelmark.lab.session.floor import fixed_round_trip

WAY = Direction(8_000_000, 20_000_000, Queue("bytes", 65536))


def test_both_delays_and_both_serializations_count() -> None:
    slow = replace(WAY, rate_bit_s=1_000_000, delay_ns=5_000_000)
    found = fixed_round_trip(LinkSpec(WAY, slow, seed=1), 25, 1500)
    assert found is not None
    # 25 bytes of payload are 53 of IP: 53 µs at 8 Mbit/s, 424 at 1.
    assert found.serialization_ns == 424_000
    assert found.total_ns == 25_000_000 + 53_000 + 424_000


def test_ipv6_has_its_own_header() -> None:
    found = fixed_round_trip(LinkSpec(WAY, WAY, seed=1), 25, 1500, "ipv6")
    assert found is not None
    assert found.serialization_ns == 73_000


def test_each_part_of_a_datagram_that_is_too_long_has_its_header() -> None:
    found = fixed_round_trip(LinkSpec(WAY, WAY, seed=1), 3000, 1500)
    assert found is not None
    # 3008 bytes of UDP: 1480, 1480 and 48, each with 20 of IP; a byte a microsecond.
    assert found.serialization_ns == (3008 + 3 * 20) * 1000
    assert found.total_ns == 40_000_000 + 2 * found.serialization_ns


def test_ethernet_fills_up_and_a_link_without_rate_takes_no_time_to_send() -> None:
    ethernet = replace(WAY, frame_overhead_bytes=24, frame_min_bytes=84, delay_ns=0)
    free = replace(WAY, rate_bit_s=None, delay_ns=0)
    found = fixed_round_trip(LinkSpec(ethernet, free, seed=1), 25, 1500)
    assert found is not None
    # 14 + 53 + 24 = 91 bytes.
    assert (found.total_ns, found.serialization_ns) == (91_000, 91_000)


@pytest.mark.parametrize(
    "way",
    [
        replace(WAY, delay_variation=DelayVariation("uniform", 1)),
        replace(WAY, hold_back=HoldBack(0.1, 5)),
        replace(WAY, changes=(Change(at_ns=1, delay_ns=5),)),
    ],
)
def test_what_varies_has_no_fixed_round_trip(way: Direction) -> None:
    assert fixed_round_trip(LinkSpec(WAY, way, seed=1), 25, 1500) is None
    assert fixed_round_trip(LinkSpec(way, WAY, seed=1), 25, 1500) is None


def test_a_shared_medium_and_a_line_that_is_there_have_none() -> None:
    assert fixed_round_trip(SharedLinkSpec({"type": "wlan"}, 1), 25, 1500) is None
    assert fixed_round_trip(None, 25, 1500) is None
