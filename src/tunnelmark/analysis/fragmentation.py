"""Fragmentation points and overhead, as the proofs by wire saw them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tunnelmark.model.block import BlockRecord, WireProof

Place = tuple[str, str, str]
"""(link, device, tunnel)."""


@dataclass(frozen=True)
class OnTheWire:
    """One payload size of one tunnel."""

    payload_bytes: int
    outer_packet_bytes: tuple[int, ...]

    @property
    def overhead_bytes(self) -> int:
        """Outer IP bytes minus payload."""
        return sum(self.outer_packet_bytes) - self.payload_bytes


def fragmentation_points(blocks: Iterable[BlockRecord]) -> Mapping[Place, int]:
    """Return the largest payload in one outer packet; of several tunnels at once the smallest.

    A place whose proofs found none is left out: missing is not zero.
    """
    found: dict[Place, int] = {}
    for place, proof in proofs(blocks):
        point = proof.fragmentation_point_bytes
        if point is not None:
            found[place] = min(point, found.get(place, point))
    return found


def overheads(blocks: Iterable[BlockRecord]) -> Mapping[Place, Mapping[int, OnTheWire]]:
    """Return what was seen of each payload size; the largest where captures differ."""
    found: dict[Place, dict[int, OnTheWire]] = defaultdict(dict)
    for place, proof in proofs(blocks):
        for sample in proof.samples:
            seen = OnTheWire(sample.payload_bytes, sample.outer_packet_bytes)
            known = found[place].get(sample.payload_bytes)
            if known is None or seen.overhead_bytes > known.overhead_bytes:
                found[place][sample.payload_bytes] = seen
    return {place: dict(sorted(sizes.items())) for place, sizes in found.items()}


def proofs(blocks: Iterable[BlockRecord]) -> Iterator[tuple[Place, WireProof]]:
    """Yield every proof that passed, of tunnels and of the baselines beside them."""
    for block in blocks:
        for tunnel, own in (
            (block.baseline, block.baseline_proofs),
            (block.tunnel, block.proofs),
        ):
            for proof in own:
                if proof.ok:
                    yield (block.link, block.device, tunnel), proof
