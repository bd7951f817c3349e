"""The backend whose sessions are labs; it is asked for all jobs of a run before any is opened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from tunnelmark.hosts.ledger import Ledger, read_journal
from tunnelmark.hosts.vm_payload import agent_beside
from tunnelmark.lab.environment import describe
from tunnelmark.lab.hosts_placement import HostsPlacement
from tunnelmark.lab.placement import Placement
from tunnelmark.lab.session.calm import Calm
from tunnelmark.lab.session.check import check_jobs, programs_of
from tunnelmark.lab.session.floor import Floors
from tunnelmark.lab.session.session import LabSession
from tunnelmark.model.job import Job
from tunnelmark.model.session import Able, Observer
from tunnelmark.probes.busy import look


@dataclass(frozen=True)
class LabBackend:
    """Opens sessions; ``ledger`` and ``placement`` are the run's, and their owner closes them."""

    ledger: Ledger
    placement: Placement | HostsPlacement
    engine: str
    keep_samples: bool
    floors: Floors = field(default_factory=dict)

    @cached_property
    def _calm(self) -> Calm:
        return Calm(partial(look, str(agent_beside(Path(self.engine)))))

    def check(self, jobs: Sequence[Job], of: Sequence[Job] = ()) -> Able:
        """Ask every driver of the jobs before anything is made.

        ``of`` are all jobs of the study where ``jobs`` are a part of it: the environment has the
        programs of all, or each part would be of an environment of its own.
        Raises ``LabError`` if a workload cannot run, or no tunnel can.
        """
        skipped, programs = check_jobs(jobs, self.placement)
        programs |= programs_of(of, self.placement)
        return Able(
            tuple(job for job in jobs if job.block.tunnel.label not in skipped),
            skipped,
            {**describe(self.engine, programs), **self.placement.describe()},
        )

    def open(self, job: Job, folder: Path, observer: Observer) -> LabSession:
        """Return a session; nothing is made yet."""
        logs = folder / "logs" / job.job_id
        return LabSession(
            job,
            self.ledger,
            lambda: self.placement.place(job.block.tunnel.label, logs, job.block.device),
            engine=self.engine,
            folder=folder,
            keep_samples=self.keep_samples,
            observer=observer,
            floors=self.floors,
            calm=self._calm,
        )

    def changed(self) -> Mapping[str, str]:
        """Return what this computer's namespaces may use because of this run, for its record."""
        journal = read_journal(self.ledger.directory)
        names = sorted({entry.name for entry in journal if entry.kind == "tcp_allowed"})
        return {"tcp allowed by the run": " ".join(names)} if names else {}
