"""What is recorded of a block beside its trials: what came up, where, and the proof by wire."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

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


class ProofVerdict(StrEnum):
    """What a proof by wire came to."""

    PROVED = "proved"
    COULD_NOT_SEE = "could_not_see"
    """Nothing is known: probes were lost, the capture had holes. Another attempt may see."""
    SAW_WRONG = "saw_wrong"
    """The packets on the link are not the tunnel's, or are readable. It stays so."""
    MODELLED = "modelled"
    """Nothing was on a link: the packets are those of the tunnel's model, in a simulation."""


PROBE_CLASS: Final = 0x0A
"""Traffic class of the packets of a proof: a DSCP that nobody has a meaning for (2), so that no
queue or WLAN treats them otherwise, and ECT(0)."""


@dataclass(frozen=True)
class WireProof:
    """What a capture on the link says of one tunnel path."""

    path: str
    verdict: ProofVerdict
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
    traffic_class: int | None = None
    """DSCP and ECN, as one byte, of the packets that carried probes, which had ``PROBE_CLASS``
    themselves; None: not the same on all, or there was no IP header to look at."""

    @property
    def ok(self) -> bool:
        """Whether trials may follow."""
        return self.verdict in {ProofVerdict.PROVED, ProofVerdict.MODELLED}


@dataclass(frozen=True)
class Layered:
    """The headers around one payload."""

    payload_bytes: int
    layers: tuple[Layer, ...]
    """By the model, outermost first, summed over all packets of the datagram."""
    equal: bool
    """Whether the capture had packets of the very lengths that these layers add up to."""


Phase = Literal["lab", "tunnel", "proof", "warm", "trials", "waiting", "down", "done", "failed"]
"""Where a block is."""


class Stratum(StrEnum):
    """Where figures come from: never pooled with others, compared only where that is said."""

    NAMESPACES = "namespaces"
    """Network namespaces of this computer, on its own CPU."""
    EMULATED = "emulated"
    """A machine whose CPU is software."""
    VIRTUALIZED = "virtualized"
    """A machine on this computer's CPU (KVM), with a kernel and mitigations of its own."""
    HOSTS = "real hosts"
    """Two real hosts with the line between them."""
    SIMULATION = "simulation"
    """Virtual time: what the models say, nothing was measured."""


@dataclass(frozen=True)
class Attempt:
    """One lab with one start of the tunnel in it; a block has one for each bring-up at least."""

    bring_up: int
    """1-based; an attempt that takes the place of one that failed has the same number."""
    phase: Phase
    """``done``, else the phase in which it ended."""
    reason: str | None
    """What ended it before it was done."""
    transient: bool
    """Whether the reason may be gone in another attempt; False for one that is done."""
    seconds: Mapping[str, float]
    """Wall time by phase."""
    negotiated: tuple[Negotiated, ...] = ()
    baseline_negotiated: tuple[Negotiated, ...] = ()
    proofs: tuple[WireProof, ...] = ()
    baseline_proofs: tuple[WireProof, ...] = ()
    end_proofs: tuple[WireProof, ...] = ()
    """Of the tunnel when its trials were done."""
    trials: tuple[str, ...] | None = None
    """Its trials, each with the number of the attempt at it (``<trial>-<attempt>``), where it is
    ``disproved``. None: not noted, as in results of before."""

    @property
    def disproved(self) -> str | None:
        """Return what the last proofs saw that must not be; its trials then count for nothing."""
        wrong = (p.message for p in self.end_proofs if p.verdict is ProofVerdict.SAW_WRONG)
        return next(wrong, None)


@dataclass(frozen=True)
class BlockRecord:
    """One block as it was run."""

    block_id: str
    tunnel: str
    link: str
    device: str
    placed_on: str
    """For example ``network namespaces of this machine, native CPU``."""
    negotiated: tuple[Negotiated, ...]
    """This and the proofs are of the last attempt that came so far; ``attempts`` has them all."""
    baseline_negotiated: tuple[Negotiated, ...]
    proofs: tuple[WireProof, ...]
    baseline_proofs: tuple[WireProof, ...]
    seconds: Mapping[str, float]
    """Wall time by phase: lab_up, tunnel_up, proof, warm, trials, measuring, waiting, down."""
    error: str | None = None
    """Why the block could not be run or was given up; its points then have no estimate."""
    details: Mapping[str, object] = field(default_factory=dict)
    baseline: str = "none"
    """Label of what the tunnel is compared with, for example ``none IPv6``."""
    layers: tuple[Layered, ...] = ()
    """Of the payloads of the first proof."""
    attempts: tuple[Attempt, ...] = ()
    """In order of time, those of earlier sessions of the run included."""
    stratum: Stratum = Stratum.NAMESPACES
    chosen: str | None = None
    """The implementation that the driver chose where the study left it open (``auto``)."""
    notes: tuple[str, ...] = ()
    """What a reader must know of how its figures came about, each without a full stop and without
    the tunnel's name."""

    @property
    def wall_s(self) -> float:
        """From the start of the lab to its end; measuring is a part of the trials."""
        return sum(seconds for phase, seconds in self.seconds.items() if phase != "measuring")


@dataclass(frozen=True)
class PlaceTime:
    """The time of all blocks that ran in one place."""

    place: str
    wall_s: float
    measuring_s: float
    waiting_s: float = 0.0
    """Until others left the computer alone."""

    def describe(self) -> str:
        """Return one phrase, for example ``54 % of 312 s measuring in network namespaces …``."""
        share = self.measuring_s / self.wall_s if self.wall_s else 0.0
        waited = f", {self.waiting_s:.0f} s waiting for a calm computer" if self.waiting_s else ""
        return f"{100 * share:.0f} % of {self.wall_s:.0f} s spent measuring{waited} in {self.place}"


def time_by_place(blocks: Iterable[BlockRecord]) -> tuple[PlaceTime, ...]:
    """Return what blocks took by the place where they ran, each of which has costs of its own."""
    sums: dict[str, PlaceTime] = {}
    for block in blocks:
        place = block.placed_on
        so_far = sums.get(place, PlaceTime(place, 0.0, 0.0))
        sums[place] = PlaceTime(
            place,
            so_far.wall_s + block.wall_s,
            so_far.measuring_s + block.seconds.get("measuring", 0.0),
            so_far.waiting_s + block.seconds.get("waiting", 0.0),
        )
    return tuple(time for place, time in sums.items() if place)
