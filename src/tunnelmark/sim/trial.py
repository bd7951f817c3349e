"""One trial in virtual time: the workload's own code, with the simulator in the place of a lab."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from tunnelmark.engine import config
from tunnelmark.model.block import Stratum
from tunnelmark.model.caught import Faults
from tunnelmark.model.errors import LabError
from tunnelmark.model.rules import Limits
from tunnelmark.model.seeds import stream
from tunnelmark.model.session import Observer
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.validity import INTERRUPTED, Check, Validity
from tunnelmark.probes.carried import fairness
from tunnelmark.sim import evidence
from tunnelmark.sim.carriage import Carriage, payloads_of
from tunnelmark.sim.clients import client_config, client_ends
from tunnelmark.sim.host import Line, Parts, SimHost
from tunnelmark.sim.simulate import Simulated, simulate
from tunnelmark.sim.tcp import bulk_config, bulk_ends
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.bulk import BulkEnds, BulkFlow
from tunnelmark.workloads.exchanges import Client, ClientEnds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = Outcome((), (), 0, 0, 0.0)
"""What a workload came to that broke."""
_TOTAL_AND_ONE: Final = 2
"""Measurements of a trial over one path."""
_HOSTS: Final[tuple[Literal["client", "server"], ...]] = ("client", "server")


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
    observer: Observer,
) -> TrialResult:
    """Run one trial; the same job, trial and attempt give the same result, bit by bit.

    Never raises for what a workload or the simulator comes to: the result is invalid and says why.
    ``UnwritableError`` comes out.
    """
    running = _Running(stand, carried, workload, trial, attempt, observer)
    faults = Faults(stand.logs, running.name)
    outcome = _NOTHING
    with faults.caught("workload"):
        outcome = workload.run(running.context())
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
            "simulated": evidence.told(running.rounds),
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
    observer: Observer
    rounds: list[Simulated] = field(default_factory=list)
    """A search runs the simulator several times."""

    @property
    def name(self) -> str:
        """Start of the names of its files."""
        return f"{self.trial.trial_id}-{self.attempt}"

    def context(self) -> TrialContext:
        stand, trial = self.stand, self.trial
        line = Line(self.simulate)
        client, server = (SimHost(name, line, self._folder(name)) for name in _HOSTS)
        return TrialContext(
            client=client,
            server=server,
            paths=self.carried.paths,
            engine=stand.engine,
            seed=trial.seed,
            samples_dir=stand.samples_dir,
            sample_stem=self.name,
            progress=lambda progress: self.observer.progress(trial, progress),
            cancelled=self.observer.cancelled,
            # No process here ends with the run, and no process id is in what it writes.
            owner_pid=1,
            link=self.carried.link,
            link_mtu_bytes=self.carried.link_mtu_bytes,
            lateness_floor_ns=stand.limits.sender_lateness,
            lateness_gap_ratio=stand.limits.sender_lateness_gap,
            at_once=line.expect,
            pause=lambda _seconds: None,
            carry_bulk=self.carry_bulk,
            carry_clients=self.carry_clients,
        )

    def simulate(self, parts: Parts) -> Simulated:
        """Run the simulator once for what was started together."""
        files_dir = str(self.stand.work_dir)
        return self._run(sim_config(parts, self.carried, seed=self._seed(), files_dir=files_dir))

    def carry_bulk(self, flows: Sequence[BulkFlow]) -> Sequence[BulkEnds]:
        """Run the simulator once for TCP connections."""
        files_dir = str(self.stand.work_dir)
        document = bulk_config(flows, self.carried, seed=self._seed(), files_dir=files_dir)
        return bulk_ends(flows, self.carried, self._run(document))

    def carry_clients(self, clients: Sequence[Client]) -> ClientEnds:
        """Run the simulator once for programs that ask over TCP."""
        files_dir = str(self.stand.work_dir)
        document = client_config(clients, self.carried, seed=self._seed(), files_dir=files_dir)
        return client_ends(self._run(document))

    def _seed(self) -> int:
        """Return the seed of the next run of the simulator."""
        return stream(self.trial.seed, f"simulation/{self.attempt}/{len(self.rounds)}")

    def _run(self, document: Mapping[str, object]) -> Simulated:
        found = simulate(self.stand.engine, document, self.observer.cancelled)
        self.rounds.append(found)
        return found

    def _folder(self, name: str) -> Path:
        folder = self.stand.work_dir / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def sim_config(parts: Parts, carried: Carriage, *, seed: int, files_dir: str) -> dict[str, object]:
    """Return the configuration of ``tunnelmark-engine sim`` for senders and their reflectors."""
    places = {
        address: number
        for number, path in enumerate(carried.paths)
        for address in (path.client_address, path.server_address)
    }
    payloads: list[set[int]] = [set() for _ in carried.paths]
    ways: dict[str, object] = {"forward": None, "reverse": None}
    for way, told in parts.items():
        if "send" not in told:
            continue
        if "reflect" not in told:
            raise LabError(f"{way}: a sender was started without a reflector")
        flows: Sequence[Mapping[str, Any]] = told["send"]["flows"]
        taken = [places[_address(flow["target"])] for flow in flows]
        for flow, place in zip(flows, taken, strict=True):
            payloads[place].update(payloads_of(flow))
        ways[way] = {**told, "paths": taken}
    return {
        "protocol": config.PROTOCOL,
        "seed": seed,
        **carried.link_json(files_dir),
        "paths": [carried.path_json(sizes) for sizes in payloads],
        **ways,
    }


def _address(target: str) -> str:
    """Return the address of ``198.19.0.2:7700`` or ``[fd00::2]:7700``."""
    return target.rpartition(":")[0].strip("[]")


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
