"""What the batches of a proof say of each payload size on the link, without those that mislead."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tunnelmark.model.block import WireSample
from tunnelmark.probes.attribution import Probe, Votes
from tunnelmark.probes.carriers import Carrier
from tunnelmark.probes.ciphertext import Ciphertext


@dataclass
class Sizes:
    """Votes and ciphertext of all batches but doubtful ones."""

    wanted: Sequence[int]
    """Those of the study."""
    votes: Votes
    compresses: bool
    """Nothing that is less than the payload is a sign of anything."""
    stream: bool
    """The rest of a datagram may come later: only sizes that the study sends are a sign."""
    ciphertext: Ciphertext = field(default_factory=Ciphertext)
    doubtful: list[WireSample] = field(default_factory=list)
    """One of each batch of which a probe holds more than went over the link for it."""
    settled: int = 0
    """All other batches."""

    def add(
        self,
        probes: Sequence[Probe],
        parts: Sequence[Sequence[Carrier]],
        *,
        sure: Collection[int],
    ) -> bool:
        """Count a batch; return whether it does.

        Where less went over the link than a probe holds, each probe may have been given the packet
        of another, or they went another way: all of that batch is as doubtful. A batch that
        contradicts the batches before it in most of the ``sure`` sizes does not count either: of
        the others, those batches may be what is wrong.
        """
        votes = self.votes.empty()
        votes.add(probes, parts)
        own, known = votes.agreed(), self.votes.agreed()
        if not self.compresses and (short := self._short(own)):
            self.doubtful.append(short)
            return False
        again = [own[size] == known[size] for size in sure if size in own and size in known]
        if again.count(False) > again.count(True):
            return False
        self.settled += 1
        self.votes.add(probes, parts)
        self.ciphertext.add(probes, [[carrier.body for carrier in part] for part in parts])
        return True

    @property
    def bypassed(self) -> WireSample | None:
        """One of what went another way; None where most batches saw all that they held."""
        return self.doubtful[0] if len(self.doubtful) > self.settled else None

    def _short(self, lengths: Mapping[int, tuple[int, ...]]) -> WireSample | None:
        for size in self.wanted if self.stream else (*self.wanted, *lengths):
            sample = WireSample(size, lengths.get(size, ()))
            if sample.outer_packet_bytes and sample.overhead_bytes < 0:
                return sample
        return None
