"""Where the delay of packets arose: inside the sender, on the link, inside the receiver. Pure.

Two captures, at the link's interface of either end, and the times at which the packets were sent
and received: an outer packet is the same at both ends byte by byte, and the n-th one that left the
sender carries the n-th packet that was sent.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from tunnelmark.probes.pcap import Frame, WirePacket

PARTS: Final = ("sender", "link", "receiver")
MOST_SIZES: Final = 64
"""Packet sizes that are distinguished in a trial's details, the most frequent ones."""

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mark:
    """An outer packet at one place."""

    time_ns: int
    key: bytes
    """The same at every place, and no other packet's."""


@dataclass(frozen=True)
class Split:
    """Delays in ns of the packets that came through, in order; the three parts add up."""

    sender: Times
    link: Times
    receiver: Times


@dataclass(frozen=True)
class Sizes:
    """IP packets of one direction at one place."""

    packets: int
    octets: int
    fragments: int
    """Packets that are a part of a longer one."""
    by_bytes: tuple[tuple[int, int], ...]
    """(length, count) of the most frequent lengths."""


def marks(frames: Iterable[Frame], *, sources: frozenset[str], ip_bytes: int) -> list[Mark]:
    """Return the whole packets of one length from one end, in the order of capture."""
    return [
        Mark(frame.time_ns, blake2b(frame.payload, digest_size=16).digest())
        for frame in frames
        if isinstance(frame, WirePacket)
        and not frame.fragment
        and frame.source in sources
        and frame.ip_bytes == ip_bytes
    ]


def sizes(frames: Iterable[Frame], sources: frozenset[str]) -> Sizes:
    """Return what went one way; frames that are not IP are not counted."""
    seen = [f for f in frames if isinstance(f, WirePacket) and f.source in sources]
    counter = Counter(frame.ip_bytes for frame in seen)
    return Sizes(
        len(seen),
        sum(frame.ip_bytes for frame in seen),
        sum(frame.fragment for frame in seen),
        tuple(sorted(counter.most_common(MOST_SIZES))),
    )


def split(
    sent_ns: Times,
    received_ns: Times,
    received: npt.NDArray[np.bool_],
    left: Sequence[Mark],
    came: Sequence[Mark],
    *,
    clock_error_ns: int = 0,
) -> Split | str:
    """Return the three parts of each received packet's delay, or why they are unknown.

    ``sent_ns`` in order of sending, ``received_ns`` where ``received``, ``left`` and ``came`` the
    marks at the sender's and at the receiver's end, all on one clock; ``clock_error_ns`` is how far
    a packet may seem to leave before it was sent.
    """
    if len(left) != len(sent_ns):
        return f"{len(left)} outer packets of that size left the sender, {len(sent_ns)} were sent"
    if len({mark.key for mark in left}) != len(left):
        return "outer packets look alike"
    left_ns = np.array([mark.time_ns for mark in left], dtype=np.int64)
    if len(left) and int((left_ns - sent_ns).min()) < -clock_error_ns:
        return "an outer packet left before its datagram was sent: they are out of order"
    first: dict[bytes, int] = {}
    for mark in came:
        first.setdefault(mark.key, mark.time_ns)
    arrived = np.array([mark.key in first for mark in left], dtype=np.bool_)
    if bool((received & ~arrived).any()):
        return "a datagram was received whose outer packet did not arrive: they are out of order"
    came_ns = np.array([first[mark.key] for mark in np.array(left, dtype=object)[received]])
    came_ns = came_ns.astype(np.int64)
    return Split(
        (left_ns - sent_ns)[received],
        came_ns - left_ns[received],
        received_ns[received] - came_ns,
    )
