"""Which payload sizes a proof asks for next, and what the answers so far say of each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tunnelmark.model.overhead import IP_HEADER_BYTES, UDP_HEADER_BYTES, IpVersion
from tunnelmark.model.tunnel import WireRule
from tunnelmark.probes.attribution import Expected, Probe, Votes, anything
from tunnelmark.probes.carriers import Carrier
from tunnelmark.probes.fragmentation import (
    SMALLEST_BYTES,
    consistent,
    next_sizes,
    sizes_around,
)
from tunnelmark.probes.sizes import Sizes


class Asking:
    """The sizes of the study, and with ``search`` those that enclose the fragmentation point.

    Only what was seen can be wrong: what was not seen is asked for again, a bounded number of
    times. So is a size of which something else was seen than ``expected`` says: on a busy computer
    a packet may have been taken for that of another probe.
    """

    def __init__(
        self,
        payload_sizes: Sequence[int],
        rule: WireRule,
        *,
        ip_version: IpVersion,
        inner_mtu_bytes: int,
        one_packet_bytes: int,
        search: bool,
        expected_bytes: int | None,
        expected: Expected,
        once: bool = False,
    ) -> None:
        """Start with nothing seen.

        What is no longer than ``one_packet_bytes`` with its IP and UDP headers goes in one packet.
        ``expected_bytes`` is where the fragmentation point was before: if it is still there, the
        first batch shows that. ``once``: what passes is asked, and not how long it is: one batch
        that counts is enough, if nothing of it is lost.
        """
        self._stream = bool(rule.tcp_ports)
        self._compresses = rule.compresses
        self._expected, self._once = expected, once
        self._mtu_bytes, self._search, self._point_bytes = inner_mtu_bytes, search, expected_bytes
        self._headers_bytes = IP_HEADER_BYTES[ip_version] + UDP_HEADER_BYTES
        self._one_bytes = one_packet_bytes - self._headers_bytes
        self._votes = Votes(
            self._one_bytes,
            # Over QUIC, where shorter packets only acknowledge, longer ones may do so as well.
            acknowledges=rule.least_carrier_bytes > 0,
            stream=self._stream,
            expected=anything if self._stream else expected,
        )
        wanted = tuple(sorted({size for size in payload_sizes if size >= SMALLEST_BYTES}))
        self.seen = Sizes(wanted, self._votes, compresses=rule.compresses, stream=self._stream)
        self._lengths: Mapping[int, tuple[int, ...]] = {}
        self._sizes: tuple[int, ...] = ()
        """Those of the batch that is under way, without those that fill it up."""
        self._sent: Counter[int] = Counter()
        self._counted: Counter[int] = Counter()
        """How often each size was sent in batches that count."""
        self._batches = 0
        self._whole = False
        """Whether the capture of any batch had everything that passed."""

    def batch(self) -> tuple[int, ...]:
        """Return the sizes to send next; none when there is nothing left to ask."""
        number, known = self._batches, self._lengths
        used_up = number >= _MAX_BATCHES + len(self.seen.wanted) // _BATCH_SIZES
        # Nothing was seen, again and again: a busy machine may spoil a batch, hardly all.
        futile = number >= _FUTILE_BATCHES and not known
        # How long a compressed packet is depends on those before it.
        settled = self._compresses and self._whole and known
        enough = self._once and self._counted and not self.lost()
        if used_up or futile or settled or enough:
            return ()
        open_ = self._open()
        self._sizes = tuple(dict.fromkeys((*open_[:_BATCH_SIZES], *self._searched())))
        if not self._sizes:
            return ()
        self._batches += 1
        self._sent.update(self._sizes)
        # A batch of few probes can be mistaken for one shifted by one; known sizes fill it up.
        others = [size for size in known if size not in self._sizes]
        return (*self._sizes, *others[: max(0, _LEAST_SIZES - len(self._sizes))])

    def answer(
        self, probes: Sequence[Probe], parts: Sequence[Sequence[Carrier]] | None, *, whole: bool
    ) -> bool:
        """Take what each probe of the batch saw; return whether that leaves no doubt.

        ``parts`` is None where it is not known whose packets were seen. A batch whose capture is
        not ``whole`` does not count.
        """
        if parts is not None and whole:
            self._whole = True
            # What is asked for again because it was doubtful is no measure of this batch.
            sure = {*self._lengths}.difference(self._doubtful(()))
            if self.seen.add(probes, parts, sure=sure):
                self._counted.update(self._sizes)
        self._lengths = consistent(self._votes.agreed())
        if parts is None:
            return False
        # What goes in one packet was joined with the next one, or parted. The lengths keep it: they
        # are what was seen, if it is seen again or not asked for any more.
        small = {size for size in self._sizes if size <= self._one_bytes}
        doubtful = self._doubtful(small.intersection(self.seen.wanted))
        self._votes.forget(doubtful.intersection(self._votes.agreed()))
        return not doubtful

    @property
    def lengths(self) -> Mapping[int, tuple[int, ...]]:
        """Outer packet lengths by payload size; none where they depend on earlier packets."""
        return {} if self._compresses else self._lengths

    def lost(self) -> dict[int, int]:
        """Return how often each size of the study was sent of which a part was never seen."""
        if self._compresses:
            return {}
        cut = self._votes.cut.intersection(self.seen.wanted).difference(self._lengths)
        return {size: self._sent[size] for size in sorted(cut)}

    def _open(self) -> list[int]:
        """Return the doubtful sizes that may be sent once more."""
        return [
            size
            for size in sorted(self._doubtful(self.seen.wanted))
            if self._counted[size] < _MAX_ASKED and self._sent[size] < _MAX_SENT
        ]

    def _searched(self) -> tuple[int, ...]:
        """Return sizes that narrow the search for the fragmentation point."""
        if self._point_bytes is not None and not self._batches:
            return sizes_around(self._point_bytes, _LEAST_SIZES)
        if not self._search:
            return ()
        sizes = next_sizes(
            self._lengths,
            inner_mtu_bytes=self._mtu_bytes,
            headers_bytes=self._headers_bytes,
            limit=_SEARCH_SIZES,
        )
        # A stream that joins segments does so each time.
        shown = self._stream and all(self._counted[size] >= _STREAM_ASKED for size in sizes)
        return () if shown else sizes

    def _doubtful(self, sizes: Iterable[int]) -> set[int]:
        """Return those of the sizes that were not seen, and all of which something else was."""
        known = self._lengths
        other = {size for size, seen in known.items() if self._expected(size) not in {None, seen}}
        return {*sizes}.difference(known) | other


_MAX_BATCHES: Final = 8
_FUTILE_BATCHES: Final = 4
_LEAST_SIZES: Final = 12
_BATCH_SIZES: Final = 60
_SEARCH_SIZES: Final = 24
# How often a size is sent until a majority of its probes agrees, and how often with the batches
# that do not count.
_MAX_ASKED: Final = 4
_MAX_SENT: Final = 6
_STREAM_ASKED: Final = 2
