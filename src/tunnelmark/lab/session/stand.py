"""What a bring-up has made, and all its trials share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunnelmark.engine.config import ReceiveTime
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.floor import Floor
from tunnelmark.lab.session.two_clocks import Latest
from tunnelmark.model.block import Stratum, WireProof
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.trial import Trial
from tunnelmark.model.tunnel import DataPath, TunnelUp
from tunnelmark.model.validity import Check
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.workloads.background import Load
from tunnelmark.workloads.base import Workload

_SAMPLE_S = 0.1
_SAMPLE_SELDOM_S = 1.0
_SELDOM = {Stratum.EMULATED, Stratum.HOSTS}
"""Reading all processes costs an emulated CPU some ms that the sender then lacks, and a real line
some of its rate."""


@dataclass(frozen=True)
class Side:
    """What traffic goes over: the tunnel, or nothing beside it."""

    up: TunnelUp
    proofs: tuple[WireProof, ...]
    standing: Sequence[Check]
    """What was found when it came up and counts for each of its trials."""


@dataclass(frozen=True)
class Stand:
    """A lab, a tunnel that is up in it, and its baseline beside it."""

    lab: Lab
    tunnel: Tunnel
    own: Side
    base: Side
    """Also the paths of background that does not go through the tunnel."""
    limits: Limits
    probes: Probes
    floor: Floor | None
    samples_dir: Path | None
    """Where bulk records are kept; None: nowhere."""
    latest: Latest = field(default_factory=Latest)
    """The last exchange of packets by which the clocks of both ends were compared."""

    @property
    def sample_s(self) -> float:
        """How often the CPU is sampled while a trial runs."""
        return _SAMPLE_SELDOM_S if self.lab.place.stratum in _SELDOM else _SAMPLE_S


@dataclass(frozen=True)
class Task:
    """One trial, the number of the attempt at it, and what makes its traffic."""

    trial: Trial
    attempt: int
    workload: Workload
    background: Sequence[Load] = ()

    @property
    def name(self) -> str:
        """Start of the names of its files."""
        return f"{self.trial.trial_id}-{self.attempt}"


def receive_time(tunnel: TunnelUp) -> ReceiveTime:
    """Return when a packet has arrived, for every trial of the block: the baseline is paired.

    Within a namespace the kernel keeps the outer packet's time of arrival for what it finds inside,
    so decapsulation would be in no delay. Behind a tunnel in the kernel a packet has arrived when
    the program has it; a TUN stamps it again when the tunnel's program is done with it.
    """
    in_kernel = {DataPath.KERNEL, DataPath.KERNEL_THREADS}
    return "user" if any(n.data_path in in_kernel for n in tunnel.negotiated) else "kernel"
