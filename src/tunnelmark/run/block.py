"""One block: lab up, tunnel up, proof by wire, trials, down; brought up again after a death."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import Place
from tunnelmark.lab.placement import Placement
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.block import BlockRecord, Layered, WireProof
from tunnelmark.model.errors import LabError, ResultError, TunnelError, TunnelmarkError
from tunnelmark.model.registry import make
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import BASELINE, Block, DriverSpec, Trial, TrialResult
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber
from tunnelmark.probes.wire import prove
from tunnelmark.run.events import BlockPhase
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.layers import layers_seen
from tunnelmark.run.limits import limits_at
from tunnelmark.run.listen import listening
from tunnelmark.run.progress import BlockProgress
from tunnelmark.run.trial import run_trial
from tunnelmark.run.warm import warm_up
from tunnelmark.study.plan import baseline as baseline_of
from tunnelmark.study.seeds import stream
from tunnelmark.study.study import Study
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.background import Load
from tunnelmark.workloads.base import Progress, Workload
from tunnelmark.workloads.registry import workload_kinds

# The air itself keeps a frame for some ms, in a machine that is emulated for tens of them.
_AIR_SPACING_NS = 60_000_000
# Programs on an emulated CPU keep a packet for as long as a probe should be alone.
_EMULATED_SPACING_NS = 20_000_000
MOST_LIVES = 3
"""A block is brought up at most so often; a tunnel that dies three times is given up."""
PROOF_PAYLOADS_BYTES = (64, 512, 1400)
"""Sizes of the proof by wire where the workloads of the study choose none of their own."""


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
    proved: Callable[[BlockRecord], None] = lambda _record: None
    """Told each time the block is up, before its trials."""
    place: Callable[[Path], Place | None] = lambda _logs: None
    """Where the lab stands, given where logs go; None: network namespaces of this machine."""
    placed_on: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)
    """How the limits of the endpoints' CPUs were calibrated, by role."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    layers: tuple[Layered, ...] = ()
    record: BlockRecord | None = None

    def run(self) -> BlockRecord:
        """Run until the stop rule is met, the block has died too often, or the run is cancelled.

        A tunnel or lab that cannot be brought up ends in ``BlockRecord.error``.
        """
        error: str | None = None
        for life in range(1, MOST_LIVES + 1):
            try:
                death = self._live()
            except Interrupted:
                error = None
                break
            except ResultError:
                raise  # nothing can be kept any more: no other block could either
            except TunnelmarkError as failure:
                error = str(failure)
                break
            if death is None or self.interrupts.requested():
                error = None
                break
            error = f"brought up {life} times, ended by: {death}"
        self._phase("failed" if error else "done", error or "")
        return self._record((), (), error)

    def _live(self) -> str | None:
        """Bring the block up, run trials, take it down; return what killed it, or None."""
        link = make(link_kinds(), self.block.link)
        tunnel = make(tunnel_kinds(), self.block.tunnel)
        baseline = make(tunnel_kinds(), baseline_of(self.block))
        logs = self.directory / "logs" / self.block.block_id
        self._phase("lab")
        with self._timed("lab_up"), self.interrupts.abrupt():
            lab = Lab(
                self.ledger,
                Topology(link.mtu_bytes, self.study.topology.router),
                link.spec(stream(self.study.seed, f"link/{self.block.block_id}")),
                engine=self.engine,
                logs=logs,
                place=self.place(logs),
                emulate=not tunnel.is_link,
            )
            self.placed_on = lab.place.placed_on
            self.devices = {name: one.describe() for name, one in lab.place.limits.items()}
        try:
            alone = self.block.tunnel.kind == BASELINE
            with self.interrupts.abrupt():
                self._phase("tunnel")
                with self._timed("tunnel_up"):
                    up = tunnel.up(lab.site)
                    _refuse_unlimited(self.block, up, lab.place)
                    lab.adopt(up.medium)
                    base = up if alone else up.reference or baseline.up(lab.site)
                self._phase("proof")
                with self._timed("proof"):
                    proofs = self._prove(lab, up, ())
                    base_proofs = () if alone else self._prove(lab, base, (up,))
                self.layers = layers_seen(tunnel, up.negotiated[0], proofs[0], link.mtu_bytes)
                # Before the first trial: after a kill, what is on disk still says where trials ran.
                self.proved(self._record((up, proofs), (base, base_proofs or proofs), None))
                self._phase("warm")
                with self._timed("warm"):
                    for one in (up,) if alone else (up, base):
                        warm_up(one, lab, seed=stream(self.study.seed, "warm"))
            self._phase("trials")
            with self._timed("trials"):
                return self._trials(lab, tunnel, up, base, proofs, base_proofs or proofs)
        finally:
            self._phase("down")
            with self._timed("down"), self.interrupts.cleaning():
                tunnel.down()
                baseline.down()
                lab.down()

    def _trials(  # noqa: PLR0917 - what is up
        self,
        lab: Lab,
        tunnel: Tunnel,
        up: TunnelUp,
        base: TunnelUp,
        proofs: tuple[WireProof, ...],
        base_proofs: tuple[WireProof, ...],
    ) -> str | None:
        workloads: dict[str, Workload] = {}
        while trials := self.progress.next_trials():
            for trial in trials:
                if self.interrupts.requested():
                    return None
                if trial.point.point_id in self.progress.given_up:
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
                    probes=self.study.probes,
                    tunnel_problem=tunnel.problem,
                    proofs=proofs if own else base_proofs,
                    samples_dir=self.directory / "samples" if self.keep_samples else None,
                    progress=lambda p, trial=trial: self.trial_progress(trial, p),  # type: ignore[misc]
                    cancelled=self.interrupts.requested,
                )
                measuring = result.details.get("measuring_s", 0.0)
                self.seconds["measuring"] += measuring if isinstance(measuring, float) else 0.0
                self.finished(result)
                if death := tunnel.problem() or lab.problem():
                    return death
        return None

    def _prove(self, lab: Lab, up: TunnelUp, beside: tuple[TunnelUp, ...]) -> tuple[WireProof, ...]:
        sizes = {
            size
            for point in self.block.points
            for size in make(workload_kinds(), point.workload).payload_sizes
        }
        proofs = []
        for path in up.paths:
            name = f"proof/{self.block.block_id}/{path.name}"
            others = [other.wire for other in beside]
            with listening(lab, up, path) as watch:
                proof = prove(
                    path,
                    up.wire,
                    prober=EngineProber(
                        path,
                        client=lab.client_host,
                        server=lab.server_host,
                        engine=lab.place.engine,
                        seed=stream(self.study.seed, name),
                        spacing_ns=_spacing_ns(lab, up),
                    ),
                    watch=watch,
                    payload_sizes=sorted(sizes) or PROOF_PAYLOADS_BYTES,
                    seed=stream(self.study.seed, name),
                    idle=others,
                    keep=self._keep_capture,
                )
            proofs.append(proof)
            if not proof.ok:
                self._record((up, tuple(proofs)), (None, ()), None)
                raise TunnelError(
                    f"{self.block.tunnel.label}: the proof by wire failed: {proof.message}"
                )
        return tuple(proofs)

    def _keep_capture(self, name: str, pcap: bytes) -> None:
        if self.keep_samples:
            safe = "".join(c if c.isalnum() or c in "-." else "-" for c in name)
            path = self.directory / "captures" / f"{self.block.block_id}-{safe}.pcap"
            path.write_bytes(pcap)

    def _record(
        self,
        own: tuple[()] | tuple[TunnelUp, tuple[WireProof, ...]],
        base: tuple[()] | tuple[TunnelUp | None, tuple[WireProof, ...]],
        error: str | None,
    ) -> BlockRecord:
        """Set the record anew; empty parts stay as they were."""
        last = self.record
        base_up = base[0] if base else None
        self.record = BlockRecord(
            block_id=self.block.block_id,
            tunnel=self.block.tunnel.label,
            link=self.block.link.label,
            device=self.block.device.label,
            placed_on=self.placed_on,
            negotiated=own[0].negotiated if own else (last.negotiated if last else ()),
            baseline_negotiated=base_up.negotiated
            if base_up
            else (last.baseline_negotiated if last else ()),
            proofs=own[1] if own else (last.proofs if last else ()),
            baseline_proofs=base[1] if base else (last.baseline_proofs if last else ()),
            seconds=dict(self.seconds),
            error=error,
            details={"devices": dict(self.devices)} if self.devices else {},
            baseline=baseline_of(self.block).label,
            layers=self.layers,
        )
        return self.record

    def _phase(self, phase: str, message: str = "") -> None:
        labels = (self.block.tunnel.label, self.block.link.label, self.block.device.label)
        self.tell(BlockPhase(self.block.block_id, *labels, phase, message))  # type: ignore[arg-type]

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] += time.monotonic() - start


def _spacing_ns(lab: Lab, up: TunnelUp) -> int:
    if up.tap is not None:
        return _AIR_SPACING_NS
    return _EMULATED_SPACING_NS if lab.place.emulated else PROBE_SPACING_NS


def _refuse_unlimited(block: Block, up: TunnelUp, place: Place) -> None:
    """Raise ``LabError`` where the tunnel's work is out of reach of its device's CPU limit."""
    kernels = [a for a in up.negotiated if "kernel" in a.implementation]
    if place.limits and kernels and block.tunnel.kind != BASELINE and not place.limits_kernel:
        raise LabError(
            f"{block.tunnel.label} on {block.device.label}: {kernels[0].version} does its work in "
            "this computer's kernel, which a CPU limit does not reach; choose an implementation "
            "in user space"
        )


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
