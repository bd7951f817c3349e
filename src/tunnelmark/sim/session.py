"""A job in virtual time: a ``Session`` whose trials the simulator runs."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.links.registry import link_of
from tunnelmark.model.block import Stratum
from tunnelmark.model.costs import CostModel
from tunnelmark.model.errors import LabError
from tunnelmark.model.job import Job
from tunnelmark.model.registry import make
from tunnelmark.model.session import Observer, Seen, Where
from tunnelmark.model.trial import DriverSpec, Trial, TrialResult
from tunnelmark.sim.carriage import Carriage, carriage
from tunnelmark.sim.congestion import agreed
from tunnelmark.sim.tcp import DEFAULT_NOTE, NOTE
from tunnelmark.sim.trial import Stand, run_trial
from tunnelmark.sim.work import work_of
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.background import loads_of
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.congestion import over_tcp
from tunnelmark.workloads.registry import workload_kinds

LARGEST_RECORDS_BYTES: Final = 2 << 20
"""Of a trial, at one end: about 32,000 packets. Echoes of a report are fewer, loads are more."""
TRIALS_WITH_RECORDS: Final = 400
"""Of a job: the first repeats, at least one and as many as come to no more than this. A report
draws no more of a tunnel, and the records of 50,000 trials are 650 MB that the seed gives again."""
PLACED_ON: Final = "a simulation in virtual time"


class SimSession:
    """Needs nothing but the engine and a folder for files of moments."""

    def __init__(
        self,
        job: Job,
        models: Sequence[CostModel],
        *,
        engine: str,
        folder: Path,
        work_dir: Path,
        keep_samples: bool,
        all_samples: bool,
        observer: Observer,
    ) -> None:
        """Make nothing yet; ``work_dir`` is the session's own, and ``down`` removes it."""
        self.where, self.seen = Where(), Seen()
        self._job, self._models, self._engine = job, models, engine
        self._folder, self._work_dir = folder, work_dir
        self._keep_samples, self._all_samples = keep_samples, all_samples
        self._observer = observer
        self._workloads: dict[str, Workload] = {}
        self._stand: Stand | None = None

    def up(self, bring_up: int, attempt: int) -> None:  # noqa: ARG002 - every bring-up is the same
        """Take the models: of the link, of the tunnel's packets, of what its work costs."""
        block = self._job.block
        link = link_of(block.link)
        spec = link.spec(0)
        if spec is None:
            raise LabError(f"link {block.link.label}: there is no model of it")
        own, base = (
            self._carriage(one, spec, link.mtu_bytes) for one in (block.tunnel, block.baseline)
        )
        self._workloads = {}
        sizes = [
            size for point in block.points for size in self._workload(point.workload).payload_sizes
        ]
        self.seen = Seen(
            (own.agreed,) * len(own.paths),
            (base.agreed,) * len(base.paths),
            own.proofs(sizes),
            base.proofs(sizes),
        )
        self.where.placed_on, self.where.stratum = PLACED_ON, Stratum.SIMULATION
        loads = [
            load.workload for point in block.points for load in loads_of(agreed(point.workload))
        ]
        tcp = over_tcp((*self._workloads.values(), *loads))
        lacking = [one.model_lacks for one in tcp if one.model_lacks is not None]
        model = [NOTE] if tcp or own.stream else []
        notes = [*own.work.notes, *model, *dict.fromkeys(lacking)]
        unnamed = own.stream and block.tunnel.params.get("congestion") is None
        if unnamed or any(one.params.congestion is None for one in tcp):
            notes.append(DEFAULT_NOTE)
        self.where.notes = tuple(notes)
        self._work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in spec.files.items():
            (self._work_dir / name).write_bytes(data)
        self._stand = Stand(
            own=own,
            base=base,
            engine=self._engine,
            work_dir=self._work_dir,
            logs=self._folder / "logs" / self._job.job_id,
            limits=self._job.limits,
            samples_dir=self._folder / "samples" if self._keep_samples else None,
        )

    def run(self, trial: Trial, attempt: int) -> TrialResult:
        """Simulate one trial over the tunnel, or over the bare link."""
        if self._stand is None:
            raise RuntimeError("the session is not up")
        own = trial.point.tunnel.kind == self._job.block.tunnel.kind
        carried = self._stand.own if own else self._stand.base
        workload = self._workload(trial.point.workload)
        return run_trial(
            self._stand,
            carried,
            workload,
            trial,
            attempt=attempt,
            largest_records_bytes=self._largest_records_bytes(trial),
            observer=self._observer,
        )

    def problem(self) -> str | None:
        """Return None: nothing of a simulation dies between trials."""
        return None

    def finish(self) -> None:
        """Do nothing: the model is what it was."""

    def down(self) -> None:
        """Remove the files of moments."""
        self._stand = None
        if self._work_dir.exists():
            shutil.rmtree(self._work_dir)

    def _largest_records_bytes(self, trial: Trial) -> int | None:
        if self._all_samples:
            return None
        repeats = max(1, TRIALS_WITH_RECORDS // len(self._job.block.points))
        return LARGEST_RECORDS_BYTES if trial.repeat <= repeats else 0

    def _carriage(self, spec: DriverSpec, link: AnyLinkSpec, link_mtu_bytes: int) -> Carriage:
        tunnel = make(tunnel_kinds(), spec)
        work = work_of(tunnel, spec, self._job.block.device, self._models)
        return carriage(tunnel, link, link_mtu_bytes, work)

    def _workload(self, spec: DriverSpec) -> Workload:
        return self._workloads.setdefault(spec.label, make(workload_kinds(), agreed(spec)))
