"""Who carries a job out: a backend opens sessions, a session runs trials; both know no study.

A session is used in this order: for each bring-up ``up``, then trials, ``finish``, and ``down``
whatever became of it. The loop in ``run`` decides what runs and what is tried again.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tunnelmark.model.block import Layered, Stratum, WireProof
from tunnelmark.model.job import Job
from tunnelmark.model.trial import Progress, Trial, TrialResult
from tunnelmark.model.tunnel import Negotiated

Step = Literal["lab", "tunnel", "proof", "warm"]
"""What a session does beside trials; each is a ``Phase`` of the job."""


@dataclass
class Seen:
    """What a bring-up has shown so far; what it did not come to is empty."""

    negotiated: tuple[Negotiated, ...] = ()
    baseline_negotiated: tuple[Negotiated, ...] = ()
    proofs: tuple[WireProof, ...] = ()
    baseline_proofs: tuple[WireProof, ...] = ()
    end_proofs: tuple[WireProof, ...] = ()


@dataclass
class Where:
    """Where a session takes place, and what it found out; empty until a bring-up came so far."""

    placed_on: str = ""
    """One phrase for the report."""
    stratum: Stratum | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    """How the limits of the endpoints' CPUs were calibrated, by role."""
    chosen: str | None = None
    """The implementation that the driver chose where the study left it open."""
    layers: tuple[Layered, ...] = ()
    """Of the payloads of the first proof."""
    notes: tuple[str, ...] = ()
    """What a reader must know of it, each without a full stop."""


class Observer(Protocol):
    """What a session reports to, and asks whether to continue."""

    def during(self, step: Step) -> AbstractContextManager[None]:
        """Return the context in which a step is done: timed, and broken off at once if asked."""

    def waiting(self, why: str) -> AbstractContextManager[None]:
        """Return the context in which a session waits before it measures."""

    def progress(self, trial: Trial, progress: Progress) -> None:
        """Take how far a trial is."""

    def cancelled(self) -> bool:
        """Say whether a trial is to end early, with what it has."""


class Session(Protocol):
    """One job that is carried out. Opening it makes nothing yet."""

    @property
    def where(self) -> Where:
        """Where it takes place."""

    @property
    def seen(self) -> Seen:
        """What the last bring-up has shown."""

    def up(self, bring_up: int, attempt: int) -> None:
        """Make what trials need: hosts, link, tunnel, the proof that it is what was asked for.

        ``attempt`` counts the job's attempts, so that a retry draws other numbers. Raises
        ``LabError`` or ``TunnelError``; what was made until then is left to ``down``.
        """

    def run(self, trial: Trial, attempt: int) -> TrialResult:
        """Run one trial for the ``attempt``-th time.

        Never raises for a failure of the system under test or of the measurement: the result is
        invalid and says why. ``UnwritableError`` comes out.
        """

    def problem(self) -> str | None:
        """Return why no trial can follow the last one: something died. None: all is up."""

    def finish(self) -> None:
        """Look once more whether all is what was asked for; ``RefusedError`` if it is not."""

    def down(self) -> None:
        """Remove what was made, however little it is; all of it is tried before an error is raised.

        The first error comes out, of whatever kind.
        """


@dataclass(frozen=True)
class Able:
    """What a backend can carry out of some jobs."""

    jobs: tuple[Job, ...]
    """With the points that it can measure."""
    skipped: Mapping[str, str]
    """The rest, by the name of what is in the way, and why."""
    environment: Mapping[str, str]
    """What decides its figures: programs with their versions, the computer."""
    omitted: tuple[str, ...] = ()
    """Jobs of which it can do nothing."""


class Sessions(Protocol):
    """Where jobs are carried out, one at a time."""

    def open(self, job: Job, folder: Path, observer: Observer) -> Session:
        """Return a session; files go below ``folder``, into samples, captures and logs."""


class Backend(Sessions, Protocol):
    """A kind of place in which jobs can be carried out."""

    def check(self, jobs: Sequence[Job]) -> Able:
        """Find out before any is opened; raises ``LabError`` or ``StudyError`` if none can be."""

    def changed(self) -> Mapping[str, str]:
        """Return what the run has changed about the environment until now, for its record."""
