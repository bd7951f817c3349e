"""One trial in virtual time: the workload's own code, with the simulator in the place of a lab."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tunnelmark.model.block import Stratum
from tunnelmark.model.caught import Faults
from tunnelmark.model.rules import Limits
from tunnelmark.model.seeds import stream
from tunnelmark.model.session import Observer
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.validity import INTERRUPTED, Check, Validity
from tunnelmark.probes.carried import fairness
from tunnelmark.sim import evidence
from tunnelmark.sim.beside import Beside
from tunnelmark.sim.carriage import Carriage
from tunnelmark.sim.congestion import agreed
from tunnelmark.sim.seam import Seam
from tunnelmark.sim.simulate import Simulated, simulate
from tunnelmark.workloads.background import loads_of, merged
from tunnelmark.workloads.base import Outcome, TrialContext, Workload

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = Outcome((), (), 0, 0, 0.0)
"""What a workload came to that broke."""
_TOTAL_AND_ONE: Final = 2
"""Measurements of a trial over one path."""


@dataclass(frozen=True)
class Stand:
    """What the trials of a bring-up share."""

    own: Carriage
    """The tunnel."""
    base: Carriage
    """Nothing beside it."""
    engine: str
    work_dir: Path
    """For files of moments."""
    logs: Path
    limits: Limits
    samples_dir: Path | None
    """Where bulk records are kept; None: nowhere."""


def run_trial(
    stand: Stand,
    carried: Carriage,
    workload: Workload,
    trial: Trial,
    *,
    attempt: int,
    largest_records_bytes: int | None,
    observer: Observer,
) -> TrialResult:
    """Run one trial; the same job, trial and attempt give the same result, bit by bit.

    Larger records than ``largest_records_bytes`` are not kept; None: all are.

    Never raises for what a workload or the simulator comes to: the result is invalid and says why.
    ``UnwritableError`` comes out.
    """
    running = _Running(stand, carried, workload, trial, attempt, largest_records_bytes, observer)
    faults = Faults(stand.logs, running.name)
    outcome = _NOTHING
    with faults.caught("workload"):
        outcome = _outcome(running)
    checks = [*outcome.checks, *faults.checks]
    if observer.cancelled():
        checks.append(Check(INTERRUPTED, ok=False, message="the run was interrupted"))
    return TrialResult(
        trial=trial,
        attempt=attempt,
        # Nobody's clock: the same wherever and whenever it runs, and in order of the repeats.
        started_at=_EPOCH + timedelta(days=trial.repeat - 1, hours=attempt - 1),
        duration_s=sum(one.lasted_ns for one in running.rounds) / 1e9,
        measurements=_measurements(outcome, running),
        validity=Validity(tuple(checks)),
        details={
            **outcome.details,
            "measuring_s": outcome.measuring_s,
            "simulated": evidence.reported(running.rounds),
        },
        samples=outcome.samples,
        stratum=Stratum.SIMULATION,
    )


@dataclass
class _Running:
    """A trial under way."""

    stand: Stand
    carried: Carriage
    workload: Workload
    trial: Trial
    attempt: int
    largest_records_bytes: int | None
    observer: Observer
    rounds: list[Simulated] = field(default_factory=list)
    """A search runs the simulator several times."""
    beside: Beside | None = None
    """Loads that run beside what is sent; None: nothing does."""

    @property
    def name(self) -> str:
        """Start of the names of its files."""
        return f"{self.trial.trial_id}-{self.attempt}"

    def context(self) -> TrialContext:
        stand, trial = self.stand, self.trial
        seam = Seam(self.carried, stand.work_dir, self._seed, self._run)
        return TrialContext(
            client=seam.host("client"),
            server=seam.host("server"),
            paths=self.carried.paths,
            engine=stand.engine,
            seed=trial.seed,
            samples_dir=stand.samples_dir,
            largest_records_bytes=self.largest_records_bytes,
            sample_stem=self.name,
            progress=lambda progress: self.observer.progress(trial, progress),
            cancelled=self.observer.cancelled,
            # No process here ends with the run, and no process id is in what it writes.
            owner_pid=1,
            link=self.carried.link,
            link_mtu_bytes=self.carried.link_mtu_bytes,
            outside=stand.base.paths,
            lateness_floor_ns=stand.limits.sender_lateness,
            lateness_gap_ratio=stand.limits.sender_lateness_gap,
            at_once=seam.line.expect,
            end_when_lost=seam.line.end_when_lost,
            pause=lambda _seconds: None,
            carry_bulk=seam.carry_bulk,
            carry_clients=seam.carry_clients,
        )

    def _seed(self) -> int:
        """Return the seed of the next run of the simulator."""
        return stream(self.trial.seed, f"simulation/{self.attempt}/{len(self.rounds)}")

    def _run(self, document: Mapping[str, object]) -> Simulated:
        engine, cancelled = self.stand.engine, self.observer.cancelled
        document = {**document, **self.carried.cores_json()}
        if self.beside is None:
            found = simulate(engine, document, cancelled)
        else:
            found = self.beside.run(document, lambda one: simulate(engine, one, cancelled))
        self.rounds.append(found)
        return found


def _outcome(running: _Running) -> Outcome:
    """Run the workload, with the study's loads beside it."""
    context, workload = running.context(), running.workload
    loads = loads_of(agreed(running.trial.point.workload))

    def accompanied(job: Callable[[TrialContext], Outcome]) -> Outcome:
        stand = running.stand
        running.beside = beside = Beside(
            context, loads, running.carried, stand.base, stand.work_dir
        )
        try:
            outcome = job(replace(context, settle=beside.settle))
        finally:
            running.beside = None
        return merged(outcome, beside.runners)

    if not loads:
        return workload.run(context)
    if workload.wants_background:
        return workload.run(replace(context, beside=accompanied))
    return accompanied(workload.run)


def _measurements(outcome: Outcome, running: _Running) -> tuple[Measurement, ...]:
    """Return the workload's figures, the total with those that every trial has."""
    common = {
        **evidence.trial_metrics(outcome, running.rounds, running.carried),
        **evidence.packet_metrics(running.carried, running.workload.payload_sizes),
    }
    if len(outcome.measurements) > _TOTAL_AND_ONE:
        common["paths_fairness_ratio"] = fairness(outcome.measurements)
    return tuple(
        replace(one, metrics={**one.metrics, **common}) if one.path == "total" else one
        for one in outcome.measurements
    )
