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
