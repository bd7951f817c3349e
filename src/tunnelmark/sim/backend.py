"""The backend whose sessions are simulations."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tunnelmark
from tunnelmark.devices.registry import DEVICES
from tunnelmark.engine.binary import engine_version
from tunnelmark.model.costs import CostModel, to_toml
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.session import Able, Observer
from tunnelmark.model.trial import BASELINE, Block
from tunnelmark.sim.memory import keep_freed_memory
from tunnelmark.sim.refusals import sort_out
from tunnelmark.sim.session import SimSession
from tunnelmark.sim.work import Work, work_of
from tunnelmark.tunnels.registry import tunnel_kinds

BACKEND = "simulation in virtual time"
"""What the environment of a simulated result says of where it was run."""


@dataclass(frozen=True)
class SimBackend:
    """Opens sessions; ``work_dir`` is the run's, in memory where there is room."""

    engine: str
    models: tuple[CostModel, ...]
    work_dir: Path
    keep_samples: bool
    all_samples: bool = False
    """Records of any length are kept, not only those of few packets: the seed gives them again."""

    def check(self, jobs: Sequence[Job]) -> Able:
        """Find what can be simulated; ``StudyError`` if nothing can.

        The environment is what decides the figures and no computer: the same jobs have the same
        one everywhere. So all jobs of a study are asked about, also where one of them is run.
        """
        found = sort_out(jobs, self.models)
        costs = {
            f"costs of {_named(job.block)}": self._work(job.block)
            for job in found.jobs
            if job.block.tunnel.kind != BASELINE
        }
        return Able(
            found.jobs,
            found.skipped,
            {
                "backend": BACKEND,
                "tunnelmark": tunnelmark.__version__,
                "engine": engine_version(self.engine),
                **{name: _reported(work) for name, work in costs.items()},
            },
            found.omitted,
        )

    def _work(self, block: Block) -> Work:
        tunnel = make(tunnel_kinds(), block.tunnel)
        return work_of(tunnel, block.tunnel, block.device, self.models)

    def open(self, job: Job, folder: Path, observer: Observer) -> SimSession:
        """Return a session; nothing is made yet."""
        keep_freed_memory()
        return SimSession(
            job,
            self.models,
            engine=self.engine,
            folder=folder,
            work_dir=self.work_dir / job.job_id,
            keep_samples=self.keep_samples,
            all_samples=self.all_samples,
            observer=observer,
        )

    def changed(self) -> Mapping[str, str]:
        """Return that nothing was."""
        return {}


def _named(block: Block) -> str:
    on = f" on {block.device.label}" if DEVICES[block.device.kind].limited else ""
    return block.tunnel.label + on


def _reported(work: Work) -> str:
    if work.model is None:
        return work.source
    return f"{work.source}, {hashlib.sha256(to_toml(work.model).encode()).hexdigest()[:12]}"
