"""The search for the fragmentation point: which payload sizes to try next. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SMALLEST_BYTES: Final = 24
"""Smallest payload of a test packet: its header alone."""
LARGEST_BYTES: Final = 3000
"""Where the search ends: twice an Ethernet's MTU."""


@dataclass(frozen=True)
class Bracket:
    """What is known so far: the point is at least ``low`` and less than ``high``."""

    low: int | None
    """Largest payload seen in one packet, below all that took more; None: even the smallest did."""
    high: int | None
    """Smallest payload seen in more than one packet; None: all fitted into one."""

    @property
    def point(self) -> int | None:
        """The fragmentation point, once nothing is left between."""
        if self.low is None or self.high is None or self.high - self.low > 1:
            return None
        return self.low


def bracket(lengths: Mapping[int, tuple[int, ...]]) -> Bracket:
    """Return the bracket from outer packet lengths by payload size."""
    high = min((size for size, outer in lengths.items() if len(outer) > 1), default=None)
    low = max(
        (
            size
            for size, outer in lengths.items()
            if len(outer) == 1 and (high is None or size < high)
        ),
        default=None,
    )
    return Bracket(low, high)


def consistent(lengths: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Return the lengths without those that cannot be: two probes that were taken for one.

    Each part of a datagram brings no more than what stands around a whole one and an IP header of
    its own; and none is split where more of the larger ones go in one packet than are split so far.
    """
    whole = {size: outer[0] - size for size, outer in lengths.items() if len(outer) == 1}
    if not whole:
        return dict(lengths)
    most = max(whole.values()) + _PART_BYTES
    splits = [
        size
        for size, outer in lengths.items()
        if len(outer) > 1 and sum(outer) - size <= len(outer) * most
    ]
    kept = {
        size
        for size in splits
        if sum(other > size for other in whole) <= sum(other <= size for other in splits)
    }
    return {size: outer for size, outer in lengths.items() if size in whole or size in kept}


def next_sizes(
    lengths: Mapping[int, tuple[int, ...]],
    *,
    inner_mtu_bytes: int,
    headers_bytes: int = 28,
    largest_bytes: int = LARGEST_BYTES,
    smallest_bytes: int = SMALLEST_BYTES,
    limit: int = 28,
) -> tuple[int, ...]:
    """Return at most ``limit`` payload sizes to try next, none when nothing is left to find out.

    ``headers_bytes`` are the IP and UDP headers of the datagram itself. Guesses come
    first (where the inner interface or the link would split, had the tunnel the overhead seen so
    far), a grid over what is left makes sure of the end whatever the tunnel does.
    """
    known = bracket({**lengths})
    low = smallest_bytes - 1 if known.low is None else known.low
    high = largest_bytes + 1 if known.high is None else known.high
    if high - low <= 1:
        return ()
    if high - low - 1 <= limit:
        return tuple(range(low + 1, high))
    guesses = [
        inner_mtu_bytes - headers_bytes,
        inner_mtu_bytes - headers_bytes + 1,
        smallest_bytes,
        largest_bytes,
    ]
    if known.low is not None:
        room = max(max(outer) for outer in lengths.values()) - lengths[known.low][0]
        # The overhead may fall by a cipher's block of up to 16 bytes until the packet is full.
        guesses += range(known.low + room + 1, known.low + room - 16, -1)
    sizes = [size for size in dict.fromkeys(guesses) if low < size < high]
    steps = max(_LEAST_STEPS, limit - len(sizes))
    grid = [low + (high - low) * step // (steps + 1) for step in range(1, steps + 1)]
    sizes = [*sizes[: limit - _LEAST_STEPS], *grid]
    return tuple(sorted({size for size in sizes if low < size < high}))[:limit]


def sizes_around(point_bytes: int, number: int) -> tuple[int, ...]:
    """Return so many payload sizes that settle whether the point is still where it was.

    It, the next one, and smaller ones that make the batch too long to be mistaken.
    """
    step = (point_bytes - SMALLEST_BYTES) // max(1, number - 2)
    below = range(SMALLEST_BYTES, point_bytes, max(1, step))
    return (*tuple(below)[: number - 2], point_bytes, point_bytes + 1)


_LEAST_STEPS: Final = 6
# IPv6 with a fragment header, RFC 8200 section 4.5, and padding to a cipher's block.
_PART_BYTES: Final = 40 + 8 + 16
