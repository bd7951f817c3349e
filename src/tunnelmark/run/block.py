"""One block: lab, tunnel, proof by wire, trials, down; for each bring-up, and after a death."""

import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import Place
from tunnelmark.lab.placement import Placement
from tunnelmark.links.base import Link
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.block import (
    Attempt,
    BlockRecord,
    Layered,
    Phase,
    ProofVerdict,
    Stratum,
    WireProof,
)
from tunnelmark.model.errors import (
    LabError,
    ResultError,
    TunnelError,
    TunnelmarkError,
)
from tunnelmark.model.faults import told, write
from tunnelmark.model.registry import make
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import BASELINE, Block, DriverSpec, Trial, TrialResult
from tunnelmark.model.tunnel import DataPath, Negotiated, TunnelUp
from tunnelmark.model.validity import Check
from tunnelmark.run import evidence
from tunnelmark.run.events import BlockPhase
from tunnelmark.run.floor import Floor, measure_floor
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.layers import layers_seen, model_check
from tunnelmark.run.limits import limits_at
from tunnelmark.run.progress import BlockProgress
from tunnelmark.run.proving import hold, proofs_after, proofs_before
from tunnelmark.run.trial import receive_time, run_trial
from tunnelmark.run.warm import warm_up
from tunnelmark.study.plan import baseline as baseline_of
from tunnelmark.study.seeds import stream
from tunnelmark.study.study import Study
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.background import Load
from tunnelmark.workloads.base import Progress, Workload
from tunnelmark.workloads.registry import workload_kinds

MOST_ATTEMPTS = 3
"""A bring-up that fails for what may be transient is tried so often."""
_INTERRUPTED = "the run was interrupted"


@dataclass
class BlockRunner:
    """Runs the open trials of a block."""

    study: Study
    block: Block
    progress: BlockProgress
    ledger: Ledger
    engine: str
    directory: Path
    keep_samples: bool
    interrupts: Interrupts
    tell: Callable[[BlockPhase], None]
    trial_progress: Callable[[Trial, Progress], None]
    finished: Callable[[TrialResult], None]
    recorded: Callable[[BlockRecord], None] = lambda _record: None
    """Told whenever the block is up, before its trials, and after each attempt."""
    earlier: BlockRecord | None = None
    """What sessions of this run that were interrupted have recorded."""
    place: Callable[[Path], Place | None] = lambda _logs: None
    """Where the lab stands, given where logs go; None: network namespaces of this machine."""
    _placed_on: str = ""
    _stratum: Stratum | None = None
    _devices: Mapping[str, str] = field(default_factory=dict)
    """How the limits of the endpoints' CPUs were calibrated, by role."""
    _chosen: str | None = None
    _layers: tuple[Layered, ...] = ()
    _floor: Floor | None = None
    """What the lab itself adds to a round trip, as the first bring-up found it."""
    _attempts: list[Attempt] = field(default_factory=list)

    def run(self) -> BlockRecord:
        """Run until the stop rule is met, a bring-up has failed for good, or the run is cancelled.

        What may be transient is tried again; what ends the block is in ``BlockRecord.error``.
        """
        self._attempts = list(self.earlier.attempts) if self.earlier else []
        failures: Counter[int] = Counter()
        error: str | None = None
        while not error and (trials := self.progress.next_trials()):
            bring_up = self.progress.up = trials[0].bring_up
            try:
                attempt = self._attempt(bring_up)
            except Interrupted:
                break
            if self.interrupts.requested():
                break
            if attempt.reason is None:
                continue
            if attempt.disproved is None and not self.progress.next_trials():
                continue
            failures[bring_up] += 1
            if not attempt.transient:
                error = attempt.reason
            elif failures[bring_up] == MOST_ATTEMPTS:
                error = f"tried {MOST_ATTEMPTS} times, ended by: {attempt.reason}"
            else:
                self._phase("again", attempt.reason)
        self.progress.up = None
        self._phase("failed" if error else "done", error or "")
        return self._record(error)

    def _attempt(self, bring_up: int) -> Attempt:
        """Bring the block up, run the trials of one bring-up, take it down."""
        now = _Now(bring_up, len(self._attempts) + 1)
        try:
            with self._noting(now):
                self._live(now)
            if self.interrupts.requested():
                now.fail(_INTERRUPTED, transient=True)
        except Interrupted:
            now.fail(_INTERRUPTED, transient=True)
            raise
        finally:
            self._enter(now, "down")
            with self._timed(now, "down"), self.interrupts.cleaning():
                for close in reversed(now.closing):
                    with self._noting(now):
                        close()
            attempt = now.ended()
            self._attempts.append(attempt)
        self.recorded(self._record(None))
        return attempt

    def _live(self, now: "_Now") -> None:
        """Bring the block up and run its trials; raise what ends it before they are done."""
        link = make(link_kinds(), self.block.link)
        tunnel = make(tunnel_kinds(), self.block.tunnel)
        baseline = make(tunnel_kinds(), baseline_of(self.block))
        self._enter(now, "lab")
        with self._timed(now, "lab_up"), self.interrupts.abrupt():
            lab = self._lab(now, link, tunnel)
            now.closing += [lab.down, baseline.down, tunnel.down]
            self._placed_on = lab.place.placed_on
            self._stratum = lab.place.stratum
            self._devices = {name: one.describe() for name, one in lab.place.limits.items()}
        if _confined(lab.place):
            tunnel.confine()
        alone = self.block.tunnel.kind == BASELINE
        with self.interrupts.abrupt():
            self._enter(now, "tunnel")
            with self._timed(now, "tunnel_up"):
                up = tunnel.up(lab.site)
                now.negotiated = up.negotiated
                _refuse_unlimited(self.block, up, lab.place)
                lab.adopt(up.medium)
                base = up if alone else up.reference or baseline.up(lab.site)
                now.baseline_negotiated = base.negotiated
            self._enter(now, "proof")
            with self._timed(now, "proof"):
                for proof in self._prove(now, lab, up, ()):
                    now.proofs += (proof,)
                    hold(self.block, proof)
                for proof in () if alone else self._prove(now, lab, base, (up,)):
                    now.baseline_proofs += (proof,)
                    hold(self.block, proof)
            now.baseline_proofs = now.baseline_proofs or now.proofs
            agreed = up.negotiated[0]
            self._chosen = agreed.implementation if tunnel.chooses else None
            self._layers = layers_seen(tunnel, agreed, now.proofs[0], link.mtu_bytes)
            now.standing = (model_check(tunnel, agreed, self._layers, link.mtu_bytes),)
            self._enter(now, "warm")
            with self._timed(now, "warm"):
                for one in (up,) if alone else (up, base):
                    warm_up(one, lab, seed=self._seed(now, "warm"))
                if self._floor is None:
                    self._floor = measure_floor(
                        base, lab, seed=self._seed(now, "floor"), receive_time=receive_time(up)
                    )
        self._enter(now, "trials")
        # Before the first trial: after a kill, what is on disk still says where trials ran.
        self.recorded(self._record(None, now))
        with self._timed(now, "trials"):
            self._trials(now, lab, tunnel, up, base)
        if not self.interrupts.requested():
            self._enter(now, "proof")
            with self._timed(now, "proof"), self.interrupts.abrupt():
                for proof in self._prove_again(now, lab, up):
                    now.end_proofs += (proof,)
                    if proof.verdict is ProofVerdict.SAW_WRONG:
                        hold(self.block, proof)

    def _lab(self, now: "_Now", link: Link, tunnel: Tunnel) -> Lab:
        logs = self.directory / "logs" / self.block.block_id
        spec = link.spec(self._seed(now, "link"))
        topology = self.study.topology
        return Lab(
            self.ledger,
            Topology(link.mtu_bytes, topology.router, topology.reassembly),
            spec,
            engine=self.engine,
            logs=logs,
            place=self.place(logs),
            emulate=not tunnel.is_link,
            offloads=spec is None,
        )

    def _trials(self, now: "_Now", lab: Lab, tunnel: Tunnel, up: TunnelUp, base: TunnelUp) -> None:
        workloads: dict[str, Workload] = {}
        while (trials := self.progress.next_trials()) and trials[0].bring_up == now.bring_up:
            for trial in trials:
                if self.interrupts.requested():
                    return
                if not self.progress.is_open(trial):
                    continue
                own = trial.point.tunnel.kind == self.block.tunnel.kind
                key = trial.point.workload.label
                workload = workloads.setdefault(key, make(workload_kinds(), trial.point.workload))
                for limit in lab.place.limits.values():
                    limit.settle()
                attempt = self.progress.attempts[trial.trial_id] + 1
                result = run_trial(
                    trial,
                    attempt,
                    workload,
                    up if own else base,
                    lab,
                    limits_at(self.study.limits, lab.place),
                    tunnel_up=up,
                    outside=base,
                    background=_background(trial.point.workload),
                    floor=self._floor,
                    probes=self.study.probes,
                    tunnel_problem=tunnel.problem,
                    check_agreed=tunnel.check_agreed,
                    proofs=now.proofs if own else now.baseline_proofs,
                    standing=now.standing if own else (),
                    samples_dir=self.directory / "samples" if self.keep_samples else None,
                    progress=lambda p, trial=trial: self.trial_progress(trial, p),  # type: ignore[misc]
                    cancelled=self.interrupts.requested,
                )
                measuring = result.details.get("measuring_s", 0.0)
                now.seconds["measuring"] += measuring if isinstance(measuring, float) else 0.0
                self.finished(result)
                # Asking costs an emulated CPU 60 ms, and the trial has just asked.
                up_still = evidence.was_up(result.validity)
                if death := (None if up_still else tunnel.problem()) or lab.problem():
                    raise TunnelError(death)

    def _prove(
        self, now: "_Now", lab: Lab, up: TunnelUp, beside: tuple[TunnelUp, ...]
    ) -> Iterator[WireProof]:
        return proofs_before(
            self.block,
            lab,
            up,
            beside=beside,
            seed=partial(self._seed, now),
            keep=self._keep_capture,
        )

    def _prove_again(self, now: "_Now", lab: Lab, up: TunnelUp) -> Iterator[WireProof]:
        return proofs_after(lab, up, seed=partial(self._seed, now), keep=self._keep_capture)

    def _keep_capture(self, name: str, pcap: bytes) -> None:
        if self.keep_samples:
            safe = "".join(c if c.isalnum() or c in "-." else "-" for c in name)
            path = self.directory / "captures" / f"{self.block.block_id}-{safe}.pcap"
            write(path, pcap)

    def _seed(self, now: "_Now", what: str) -> int:
        """Return a seed of one attempt: an unlucky one is not drawn again by the next."""
        return stream(self.study.seed, f"{what}/{self.block.block_id}/{now.number}")

    def _record(self, error: str | None, now: "_Now | None" = None) -> BlockRecord:
        """Return what is known; ``now`` is an attempt that is under way."""
        attempts = (*self._attempts, *((now.ended(),) if now else ()))
        seconds: Counter[str] = Counter()
        # Those of a format without attempts.
        if self.earlier and not self.earlier.attempts:
            seconds.update(self.earlier.seconds)
        for attempt in attempts:
            seconds.update(attempt.seconds)
        # What came furthest last: an attempt that never came up has nothing to show.
        shown = max(reversed(attempts), key=_reached, default=None)
        return BlockRecord(
            block_id=self.block.block_id,
            tunnel=self.block.tunnel.label,
            link=self.block.link.label,
            device=self.block.device.label,
            placed_on=self._placed_on or (self.earlier.placed_on if self.earlier else ""),
            stratum=self._stratum or (self.earlier.stratum if self.earlier else Stratum.NAMESPACES),
            negotiated=shown.negotiated if shown else (),
            baseline_negotiated=shown.baseline_negotiated if shown else (),
            proofs=shown.proofs if shown else (),
            baseline_proofs=shown.baseline_proofs if shown else (),
            seconds=dict(seconds),
            error=error,
            details={"devices": dict(self._devices)} if self._devices else {},
            baseline=baseline_of(self.block).label,
            layers=self._layers or (self.earlier.layers if self.earlier else ()),
            attempts=attempts,
            chosen=self._chosen or (self.earlier.chosen if self.earlier else None),
        )

    def _enter(self, now: "_Now", phase: Phase) -> None:
        now.phase = phase
        self._phase(phase)

    def _phase(self, phase: Phase | Literal["again"], message: str = "") -> None:
        labels = (self.block.tunnel.label, self.block.link.label, self.block.device.label)
        self.tell(BlockPhase(self.block.block_id, *labels, phase, message, self.progress.up))

    @contextmanager
    def _noting(self, now: "_Now") -> Iterator[None]:
        """Note what fails in the attempt; what ends the whole run is passed on."""
        try:
            yield
        except ResultError:
            raise  # nothing can be kept any more: no other block could either
        except TunnelmarkError as error:
            now.fail(str(error), transient=error.transient or now.phase in {"trials", "down"})
        except Exception as error:  # noqa: BLE001 - a fault of a driver ends its block at most
            now.fail(self._unexpected(now, error), transient=True)

    def _unexpected(self, now: "_Now", error: Exception) -> str:
        name = f"logs/{self.block.block_id}/unexpected-{now.number}.txt"
        path = self.directory / name
        with suppress(OSError):  # its own words matter less than that the run goes on
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        return f"unexpected {told(error)} (see {name})"

    @contextmanager
    def _timed(self, now: "_Now", phase: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            now.seconds[phase] += time.monotonic() - start


@dataclass
class _Now:
    """The attempt under way."""

    bring_up: int
    number: int
    """Of the block's attempts, in all sessions of the run."""
    phase: Phase = "lab"
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Called last first, whatever became of the attempt."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    negotiated: tuple[Negotiated, ...] = ()
    baseline_negotiated: tuple[Negotiated, ...] = ()
    proofs: tuple[WireProof, ...] = ()
    baseline_proofs: tuple[WireProof, ...] = ()
    end_proofs: tuple[WireProof, ...] = ()
    standing: tuple[Check, ...] = ()
    """What was found when it came up and counts for each trial of the tunnel."""
    failure: tuple[Phase, str, bool] | None = None
    """Phase, reason, and whether it may be transient, of the first failure."""

    def fail(self, reason: str, *, transient: bool) -> None:
        """Note the first failure; those behind it are its consequences."""
        self.failure = self.failure or (self.phase, reason, transient)

    def ended(self) -> Attempt:
        """Return it as it is now."""
        phase, reason, transient = self.failure or (
            "done" if self.phase == "down" else self.phase,
            None,
            False,
        )
        return Attempt(
            self.bring_up,
            phase,
            reason,
            transient,
            dict(self.seconds),
            self.negotiated,
            self.baseline_negotiated,
            self.proofs,
            self.baseline_proofs,
            self.end_proofs,
        )


def _reached(attempt: Attempt) -> int:
    return bool(attempt.negotiated) + bool(attempt.proofs) + bool(attempt.baseline_proofs)


def _refuse_unlimited(block: Block, up: TunnelUp, place: Place) -> None:
    """Raise ``LabError`` where the tunnel's work is out of reach of its device's CPU limit."""
    if not _confined(place) or block.tunnel.kind == BASELINE:
        return
    for agreed in up.negotiated:
        if agreed.data_path is not DataPath.USER_SPACE:
            raise LabError(
                f"{block.tunnel.label} on {block.device.label}: {agreed.version} does its work in "
                f"the {agreed.data_path or 'kernel'} of this computer, which a CPU limit does not "
                "reach; choose an implementation in user space, or --place endpoints"
            )


def _confined(place: Place) -> bool:
    """Say whether a CPU limit holds programs, and not the kernel that they share."""
    return bool(place.limits) and not place.limits_kernel


def _background(spec: DriverSpec) -> list[Load]:
    return [
        Load(
            one.label,
            make(workload_kinds(), DriverSpec(one.kind, one.label, one.params)),
            one.path == "outside",
        )
        for one in spec.background
    ]


def check_drivers(study: Study, placement: Placement) -> tuple[dict[str, str], set[str]]:
    """Ask every driver before anything is made, and choose where each tunnel runs.

    Returns the tunnels that cannot run with the reason, and all programs that are needed. Raises
    ``LabError`` if a workload cannot run, or no tunnel can.
    """
    workloads = [(spec, make(workload_kinds(), spec)) for spec in study.workloads]
    beside = {one.label: one for spec in study.workloads for one in spec.background}
    workloads += [
        (spec, make(workload_kinds(), spec))
        for spec in (DriverSpec(one.kind, one.label, one.params) for one in beside.values())
    ]
    programs = {program for _, workload in workloads for program in workload.need().programs}
    skipped: dict[str, str] = {}
    chosen: dict[str, Tunnel] = {}
    for tunnel_spec in study.tunnels:
        label, tunnel = tunnel_spec.label, make(tunnel_kinds(), tunnel_spec)
        if (router := study.topology.router) not in tunnel.routers:
            skipped[label] = f"{tunnel.title} does not pass a router" + (
                " with NAT" if router == "nat" and "routed" in tunnel.routers else ""
            )
            continue
        if reason := placement.choose(label, tunnel.unavailable):
            skipped[label] = reason
            continue
        chosen[label] = tunnel
    if study.place.together:
        placement.gather({label: tunnel.unavailable for label, tunnel in chosen.items()})
    for label, tunnel in chosen.items():
        host = placement.host(label)
        programs |= set(tunnel.need(host).programs)
        for spec, workload in workloads:
            if reason := workload.unavailable(host):
                raise LabError(f"workload {spec.label}: {reason}")
    runnable = [tunnel.label for tunnel in study.tunnels if tunnel.label not in skipped]
    for device in study.devices:
        placement.check_device(device, runnable or [BASELINE])
    if study.tunnels and len(skipped) == len(study.tunnels):
        label, reason = next(iter(skipped.items()))
        raise LabError(f"no tunnel of the study can run here; {label}: {reason}")
    return skipped, programs
