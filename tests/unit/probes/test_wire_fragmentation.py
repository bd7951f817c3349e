"""The search for the fragmentation point, against tunnels whose point is known."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.overhead import (
    Encapsulation,
    Layer,
    datagram,
    fragmentation_point,
    ip_layer,
    padding,
    udp_layer,
)
from tunnelmark.probes.fragmentation import (
    LARGEST_BYTES,
    SMALLEST_BYTES,
    Bracket,
    bracket,
    consistent,
    next_sizes,
)

Carry = Callable[[int], tuple[int, ...]]


def tunnel(fixed: int, block: int, inner_mtu: int, link_mtu: int) -> tuple[Carry, int | None]:
    encapsulation = Encapsulation(
        lambda inner: (
            ip_layer(4),
            udp_layer(),
            Layer("header", fixed, "test"),
            Layer("padding", padding(inner, block), "test"),
        ),
        inner_mtu,
    )

    def carry(payload_bytes: int) -> tuple[int, ...]:
        return datagram(
            payload_bytes, link_mtu_bytes=link_mtu, encapsulation=encapsulation
        ).outer_packet_bytes

    return carry, fragmentation_point(link_mtu_bytes=link_mtu, encapsulation=encapsulation)


def search(carry: Carry, inner_mtu: int, start: tuple[int, ...]) -> tuple[Bracket, int]:
    known = {size: carry(size) for size in start}
    batches = 1
    while sizes := next_sizes(known, inner_mtu_bytes=inner_mtu):
        assert len(sizes) <= 28
        assert not set(sizes) & known.keys()
        known |= {size: carry(size) for size in sizes}
        batches += 1
    return bracket(known), batches


@given(
    fixed=st.integers(0, 120),
    block=st.sampled_from([1, 4, 8, 16]),
    inner_mtu=st.integers(100, 4000),
    link_mtu=st.integers(300, 4000),
    start=st.lists(st.integers(25, 2800), max_size=6).map(tuple),
)
def test_the_point_is_found_for_any_tunnel_in_few_batches(
    fixed: int, block: int, inner_mtu: int, link_mtu: int, start: tuple[int, ...]
) -> None:
    carry, point = tunnel(fixed, block, inner_mtu, link_mtu)
    found, batches = search(carry, inner_mtu, start)
    if point is None or point < SMALLEST_BYTES or point >= LARGEST_BYTES:
        assert found.point is None
    else:
        assert found.point == point
    assert batches <= 7


@pytest.mark.parametrize(
    ("fixed", "block", "inner_mtu", "point"),
    [(24, 1, 1500, 1420), (32, 16, 1420, 1392)],
)
def test_usual_tunnels_take_two_batches_after_the_sizes_of_the_study(
    fixed: int, block: int, inner_mtu: int, point: int
) -> None:
    carry, _ = tunnel(fixed, block, inner_mtu, 1500)
    found, batches = search(carry, inner_mtu, (100, 1000, 1472, 2000))
    assert found.point == point
    assert batches <= 3


def test_everything_in_one_packet_has_no_point() -> None:
    found, _ = search(lambda size: (size + 28,), 9000, (100,))
    assert found == Bracket(LARGEST_BYTES, None)
    assert found.point is None


def test_nothing_in_one_packet_has_no_point() -> None:
    found, _ = search(lambda size: (20, size), 1500, (100,))
    assert found.point is None


@given(
    fixed=st.integers(0, 120),
    block=st.sampled_from([1, 8, 16]),
    link_mtu=st.integers(1280, 1500),
    sizes=st.sets(st.integers(SMALLEST_BYTES, LARGEST_BYTES), min_size=1, max_size=20),
)
def test_what_a_tunnel_really_does_is_consistent(
    fixed: int, block: int, link_mtu: int, sizes: set[int]
) -> None:
    carry, _ = tunnel(fixed, block, 1500, link_mtu)
    lengths = {size: carry(size) for size in sizes}
    assert consistent(lengths) == lengths


def test_two_probes_that_were_taken_for_one_are_no_split() -> None:
    # As it was seen on air under load: 262 bytes, and the 259 of another probe beside them.
    seen = {128: (192,), 261: (325,), 262: (323, 326), 1472: (1536,), 1473: (1536, 57)}
    assert consistent(seen) == {size: outer for size, outer in seen.items() if size != 262}
    # Small ones are recognized by the larger that go in one packet.
    seen = {24: (88,), 30: (94, 30), 400: (464,), 800: (864,), 1473: (1536, 57)}
    assert consistent(seen) == {size: outer for size, outer in seen.items() if size != 30}


def test_one_whole_packet_among_splits_does_not_take_them_away() -> None:
    seen = {1472: (1536,), 1473: (1536, 57), 1600: (1536,), 2000: (1536, 584)}
    assert consistent(seen) == seen


def test_splits_alone_are_left_as_they_are() -> None:
    assert consistent({1600: (1500, 148)}) == {1600: (1500, 148)}
