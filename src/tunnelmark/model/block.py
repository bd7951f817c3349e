"""What is recorded of a block beside its trials: what came up, where, and the proof by wire."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunnelmark.model.overhead import Layer
from tunnelmark.model.tunnel import Negotiated


@dataclass(frozen=True)
class WireSample:
    """One datagram on the link, from the capture."""

    payload_bytes: int
    outer_packet_bytes: tuple[int, ...]
    """Length of each outer IP packet that carried it, in order."""

    @property
    def overhead_bytes(self) -> int:
        """Outer IP bytes minus payload."""
        return sum(self.outer_packet_bytes) - self.payload_bytes

    @property
    def fragments(self) -> int:
        """Number of outer packets."""
        return len(self.outer_packet_bytes)


@dataclass(frozen=True)
class WireProof:
    """What a capture on the link says of one tunnel path."""

    path: str
    ok: bool
    message: str
    """One sentence with the figures: what was seen, and what was wrong if anything."""
    packets: int
    foreign_packets: int
    """Packets that are not the tunnel's by its ``WireRule``."""
    marker_seen: bool
    """Whether the plaintext marker stood readable in a packet."""
    encrypted_expected: bool
    samples: tuple[WireSample, ...]
    fragmentation_point_bytes: int | None
    """Largest payload carried in one outer packet; None if not found within the sizes tried."""


@dataclass(frozen=True)
class Layered:
    """The headers around one payload."""

    payload_bytes: int
    layers: tuple[Layer, ...]
    """By the model, outermost first, summed over all packets of the datagram."""
    equal: bool
    """Whether the capture had packets of the very lengths that these layers add up to."""


@dataclass(frozen=True)
class BlockRecord:
    """One block as it was run."""

    block_id: str
    tunnel: str
    link: str
    device: str
    placed_on: str
    """E.g. ``network namespaces of this machine, native CPU``."""
    negotiated: tuple[Negotiated, ...]
    baseline_negotiated: tuple[Negotiated, ...]
    proofs: tuple[WireProof, ...]
    baseline_proofs: tuple[WireProof, ...]
    seconds: Mapping[str, float]
    """Wall time by phase: lab_up, tunnel_up, proof, warm, trials, measuring, down."""
    error: str | None = None
    """Why the block could not be run or was given up; its points then have no estimate."""
    details: Mapping[str, object] = field(default_factory=dict)
    baseline: str = "none"
    """Label of what the tunnel is compared with, e.g. ``none IPv6``."""
    layers: tuple[Layered, ...] = ()
    """Of the payloads of the first proof."""

    @property
    def emulated(self) -> bool:
        """Whether its CPU was software: its figures never stand beside native ones unmarked."""
        return self.placed_on.endswith("emulated CPU")
