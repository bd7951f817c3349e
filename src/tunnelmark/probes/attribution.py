"""Which packets on the link carried which probe: by time, without a common clock.

The sender knows when it sent (on its clock), the capture when each packet passed (on another). The
spacing of the probes is irregular, so just one shift between the two clocks makes them match.
"""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, order=True, slots=True)
class Probe:
    """One datagram that was sent."""

    sent_ns: int
    """On the sender's clock."""
    payload_bytes: int


class Seen(Protocol):
    """A packet on the link, as much of it as counts here."""

    @property
    def time_ns(self) -> int:
        """When it passed, on the capture's clock."""

    @property
    def ip_bytes(self) -> int:
        """Its length behind the Ethernet header."""


AnySeen = TypeVar("AnySeen", bound=Seen)

Expected = Callable[[int], tuple[int, ...] | None]
"""What a model says that a payload, in bytes, takes on the link: the IP bytes of each packet."""


def anything(_payload_bytes: int) -> None:
    """Expect nothing of any size."""


def attribute(
    probes: Sequence[Probe], packets: Sequence[AnySeen]
) -> tuple[tuple[AnySeen, ...], ...] | None:
    """Return, for each probe, the packets that carried it, in the order of capture.

    ``probes`` in order of sending, ``packets`` those of the probes' direction; packets of others
    may be among them and may end up with a probe (see ``Votes``). Probes that left too close
    to each other get none. None when, whatever the shift of the clocks, the probes that have a
    packet do not match theirs closely, as where packets were held up for as long as probes are
    apart, or too few match one at all.
    """
    if not probes or not packets:
        return None
    packets = sorted(packets, key=lambda packet: packet.time_ns)
    # Relative to the first: nanoseconds since 1970 do not fit a float.
    sent = np.array([probe.sent_ns - probes[0].sent_ns for probe in probes], dtype=np.int64)
    seen = np.array([packet.time_ns - packets[0].time_ns for packet in packets], dtype=np.int64)
    gaps = np.diff(sent)
    # The usual gap: a sender that was held up sends what it missed all at once.
    spacing = int(np.median(gaps)) if len(gaps) else _LONE_PROBE_NS
    lengths = np.array([packet.ip_bytes for packet in packets], dtype=np.int64)
    held = np.array([probe.payload_bytes for probe in probes], dtype=np.int64)
    near = max(1, spacing // 4)
    shift, close = _best_shift(sent, seen, near, lambda nearest: lengths[nearest] >= held)
    parts: list[list[AnySeen]] = [[] for _ in probes]
    # A probe's packets come from just before its expected time (others may have been slower) until
    # just before that of the next one, or for as long as the longest gap.
    starts = sent + shift - spacing // 4
    longest = int(gaps.max()) if len(gaps) else spacing
    for packet, time_ns, index in zip(
        packets, seen, np.searchsorted(starts, seen, side="right") - 1, strict=True
    ):
        if index >= 0 and time_ns < starts[index] + longest:
            parts[int(index)].append(packet)
    # A probe that was lost is nobody's fault: how close is asked of those that have a packet.
    if close < _CLOSE * max(sum(map(bool, parts)), _LEAST_SHARE * len(sent)):
        return None
    lonely = _lonely(gaps, spacing)
    return tuple(tuple(part) if alone else () for part, alone in zip(parts, lonely, strict=True))


class Votes:
    """Outer packet lengths by payload size, as the probes of all batches saw them."""

    def __init__(
        self,
        one_packet_bytes: int | None = None,
        *,
        acknowledges: bool = False,
        stream: bool = False,
        expected: Expected = anything,
    ) -> None:
        """Start without any.

        Above ``one_packet_bytes`` of payload there may be several packets of which not all were
        seen; None: what was seen is always all of it. ``acknowledges``: a packet may hold an
        acknowledgement beside the payload, as over QUIC (RFC 9000 section 13.2.1), and be so much
        longer. ``stream``: what does not fill a segment may come with the next datagram, which is
        longer for it. ``expected``: what two probes saw as a model says is no less so because
        others saw a part of it, or it behind a part of another: those have no vote.
        """
        self._one_packet_bytes = one_packet_bytes
        self._lengthens = acknowledges or stream
        self._stream = stream
        self._expected = expected
        self._least: int | None = None
        """What stands around a datagram of one packet, at the least."""
        self._seen: dict[int, Counter[tuple[int, ...]]] = {}
        self.cut: set[int] = set()
        """Payload sizes of probes that showed less than they held."""

    def empty(self) -> "Votes":
        """Return such votes without any."""
        made = copy.copy(self)
        made._seen, made.cut = {}, set()  # noqa: SLF001 - its own
        return made

    def add(self, probes: Sequence[Probe], parts: Sequence[Sequence[Seen]]) -> None:
        """Count what each probe saw; one that saw nothing, or not all of it, has no vote.

        A stream sends the rest of a datagram when its peer has acknowledged the beginning, which
        may be with the next probe, or after the end of the capture: a full segment at its end is
        all only where it has room for what stands around every other datagram.
        """
        pairs = zip(probes, parts, strict=True)
        seen = [(p.payload_bytes, tuple(one.ip_bytes for one in part)) for p, part in pairs if part]
        one = math.inf if self._one_packet_bytes is None else self._one_packet_bytes
        segment = max((max(lengths) for _, lengths in seen), default=0) if self._stream else 0
        around = [sum(lengths) - size for size, lengths in seen if size <= min(one, sum(lengths))]
        known = [] if self._least is None else [self._least]
        self._least = min((*around, *known), default=None)
        least = self._least or 0
        for size, lengths in seen:
            beginning = lengths[-1] == segment and sum(lengths) < size + least
            if size > one and (beginning or sum(lengths) < size):
                self.cut.add(size)
            else:
                self._seen.setdefault(size, Counter())[lengths] += 1

    def forget(self, sizes: Iterable[int]) -> None:
        """Take the votes of these sizes back."""
        for size in sizes:
            self._seen.pop(size, None)

    def agreed(self) -> dict[int, tuple[int, ...]]:
        """Return by payload size what more than half of its probes, and at least two, saw.

        A keepalive or a handshake that fell in between, a lost packet or two swapped ones make a
        probe differ; a size without a majority is left out, to be asked again. Where
        acknowledgements or other datagrams may lengthen its packet, the shortest that two of them
        saw counts.
        """
        found = {
            size: self._candidates(size, counter) for size, counter in sorted(self._seen.items())
        }
        if self._stream:
            found = self._alone(found)
        return {size: min(seen, key=sum) for size, seen in found.items() if seen}

    def _candidates(
        self, payload_bytes: int, counter: Counter[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """Return what may be the packets of such a datagram alone."""
        said = self._expected(payload_bytes)
        if said is not None and counter[said] >= _LEAST_VOTES:
            whole = [seen for seen in counter if not _torn(seen, [said], sum(said))]
            counter = Counter({seen: counter[seen] for seen in whole})
        again = [seen for seen, votes in counter.items() if votes >= _LEAST_VOTES]
        if self._lengthens:
            # The length does not show where a stream cut.
            one = [seen for seen in again if len(seen) == 1] if self._stream else again
            if whole := [seen for seen in one if sum(seen) >= payload_bytes]:
                return whole
        most = [seen for seen in again if counter[seen] * 2 > counter.total()]
        if self._stream:
            return most
        enough = payload_bytes + (self._least or 0) - _BLOCK_BYTES
        return [seen for seen in most if not _torn(seen, counter, enough)]

    def _alone(
        self, found: Mapping[int, Sequence[tuple[int, ...]]]
    ) -> dict[int, list[tuple[int, ...]]]:
        """Return what was found without single packets that hold less or more than one datagram.

        The first fragment of one may go alone, and a part of another beside it. The least that
        stands around many is what stands around one. It differs by a few digits of a counter,
        and by a cipher's block, if it has blocks.
        """
        one = self._one_packet_bytes or math.inf
        around = [
            {seen[0] - size for seen in candidates if len(seen) == 1}
            for size, candidates in found.items()
            if size <= one
        ]
        sure = Counter(itertools.chain.from_iterable(around))
        if not sure:
            return {size: [*candidates] for size, candidates in found.items()}
        many = {
            start: sum(sure[start + more] for more in range(_COUNTER_BYTES + 1)) for start in sure
        }
        # Sizes that follow each other closely and are joined each with the next one are many, too.
        least = min(start for start, sizes in many.items() if sizes * _MANY > max(many.values()))
        most = least + _COUNTER_BYTES
        if any(
            least - _BLOCK_BYTES <= bytes_ <= most + _BLOCK_BYTES
            for bytes_ in sure
            if not least <= bytes_ <= most
        ):
            # Padding, of which some of so many sizes have nearly the most.
            least, most = least - _BLOCK_BYTES, most + _BLOCK_BYTES
        return {
            size: [seen for seen in candidates if len(seen) > 1 or least <= seen[0] - size <= most]
            for size, candidates in found.items()
        }


def _torn(seen: tuple[int, ...], others: Iterable[tuple[int, ...]], enough_bytes: int) -> bool:
    """Say whether a part came so late that it stands with the next probe, as others show.

    What was seen is then too little and the beginning of what another probe of that size saw, or
    ends with what another one saw that is enough.
    """
    if sum(seen) < enough_bytes:
        return any(other[: len(seen)] == seen != other for other in others)
    return any(
        seen[len(seen) - len(other) :] == other != seen and sum(other) >= enough_bytes
        for other in others
    )


_LEAST_VOTES: Final = 2
_BLOCK_BYTES: Final = 16
"""Of a cipher: padding to it makes what stands around datagrams differ by less."""
_COUNTER_BYTES: Final = 8
"""By how much a number that grows may lengthen a header."""
_MANY: Final = 3
"""Of the most: more than one in so many."""
_LONE_PROBE_NS: Final = 10_000_000
_TRIED_SHIFTS: Final = 8
_CLOSE: Final = 0.5
"""On average over the probes that have a packet: 1 is on the spot, 0.35 is usual by chance."""
_LEAST_SHARE: Final = 0.6
"""Of the probes: fewer have a packet where packets stand together because they were held up."""

_Times = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


def _best_shift(
    sent: _Times, seen: _Times, near: int, holds: Callable[[_Times], _Bools]
) -> tuple[int, float]:
    """Return the shift that most probes find a packet with, and how close they are in sum.

    The right shift is where the differences of all packets to all probes crowd; the crowded places
    are then judged by the probes they serve, since one probe may have many packets. ``holds`` says
    of a packet for each probe whether it can hold all of it.
    """
    differences = (seen[None, :] - sent[:, None]).ravel()
    # Two sets of bins, one moved by half a bin, so that no crowd is cut in two in both.
    candidates = [
        int(np.median(differences[bins == place]))
        for bins in (differences // near, (differences + near // 2) // near)
        for place in _most_common(bins)
    ]
    best, most = (0, 0.0), 0.0
    for candidate in candidates:
        gaps = seen[_nearest(sent + candidate, seen)] - sent - candidate
        hits = gaps[np.abs(gaps) <= near]
        if not len(hits):
            continue
        # The middle one of all: one slow or fast probe does not set the pace of the others.
        shift = int(candidate + np.median(hits))
        nearest = _nearest(sent + shift, seen)
        off = np.abs(seen[nearest] - sent - shift)
        # A hit counts the more the nearer it is: shifted by one probe, an almost even spacing still
        # has a packet near most of them, but near is not on the spot. And where packets are held up
        # for as long as probes are apart, their lengths tell whose they are.
        closeness = np.clip(1 - off / near, 0, None) ** 2
        if (score := float((closeness * (1 + holds(nearest))).sum())) > most:
            best, most = (shift, float(closeness.sum())), score
    return best


def _most_common(bins: _Times) -> list[int]:
    places, counts = np.unique(bins, return_counts=True)
    return [int(place) for place in places[np.argsort(-counts, kind="stable")[:_TRIED_SHIFTS]]]


def _nearest(expected: _Times, seen: _Times) -> _Times:
    """Return for each expected time which packet is nearest."""
    after = np.searchsorted(seen, expected).clip(0, len(seen) - 1)
    before = (after - 1).clip(0)
    found: _Times = np.where(
        np.abs(seen[after] - expected) <= np.abs(seen[before] - expected), after, before
    )
    return found


def _lonely(gaps: _Times, spacing: int) -> list[bool]:
    """Return for each probe whether it is far enough from both neighbours to know its packets."""
    far = [True, *(bool(gap >= spacing // 3) for gap in gaps), True]
    return [before and after for before, after in pairwise(far)]
