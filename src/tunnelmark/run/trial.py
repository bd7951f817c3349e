"""One trial: probes start, workload, probes stop, verdict."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from tunnelmark.engine.config import ReceiveTime
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import Place
from tunnelmark.model.block import Stratum, WireProof
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.tunnel import DataPath, TunnelUp
from tunnelmark.model.validity import Check, Validity
from tunnelmark.probes.cpu import CpuProbe, CpuUsage
from tunnelmark.probes.series import cpu_seconds, link_seconds
from tunnelmark.run import evidence
from tunnelmark.run.congestion import congestion
from tunnelmark.run.faults import Faults
from tunnelmark.run.floor import Floor
from tunnelmark.run.foreign import foreign_check
from tunnelmark.run.losses import Losses, LossWatch, sent_packets
from tunnelmark.run.passing import Findings, findings, watching
from tunnelmark.run.quiet import wait_until_quiet
from tunnelmark.study.study import Limits, Probes
from tunnelmark.workloads.background import Load, run_beside
from tunnelmark.workloads.base import Outcome, Progress, TrialContext, Workload

INTERRUPTED = "not_interrupted"
"""Name of the check that fails when the run was asked to end in mid-trial."""
_INTERRUPTION = Check(INTERRUPTED, ok=False, message="the run was interrupted")
_TWO_CLOCKS = Check(
    "one_clock",
    ok=True,
    message="no one-way delay and no score of a call: both ends have clocks of their own",
)
_NOTHING = Outcome((), (), 0, 0, 0.0)
"""What a workload came to that broke."""
_SAMPLE_S = 0.1
_SAMPLE_EMULATED_S = 1.0
"""Reading all processes costs an emulated CPU some ms that the sender then lacks."""
_HOSTS = ("client", "server")
_TOTAL_AND_ONE = 2
"""Measurements of a trial over one path."""


def run_trial(  # noqa: PLR0917 - all of it is what a trial is
    trial: Trial,
    attempt: int,
    workload: Workload,
    up: TunnelUp,
    lab: Lab,
    limits: Limits,
    *,
    tunnel_up: TunnelUp,
    outside: TunnelUp,
    background: Sequence[Load],
    floor: Floor | None = None,
    probes: Probes,
    tunnel_problem: Callable[[], str | None],
    check_agreed: Callable[[], None] = lambda: None,
    proofs: tuple[WireProof, ...],
    standing: Sequence[Check] = (),
    samples_dir: Path | None,
    progress: Callable[[Progress], None],
    cancelled: Callable[[], bool],
) -> TrialResult:
    """Run one trial over ``up`` (the tunnel, or none) while ``tunnel_up`` is there beside it.

    ``standing`` was found when the tunnel came up, ``check_agreed`` is ``Tunnel.check_agreed``.
    ``outside`` are the paths of background that does not go through the tunnel.

    Never raises for a failure of the system under test or of the measurement, or for a mistake in a
    workload, probe or driver: the result is invalid and says why. ``UnwritableError`` comes out.
    """
    measuring: dict[str, set[int]] = {}
    context = TrialContext(
        client=lab.client_host,
        server=lab.server_host,
        paths=up.paths,
        engine=lab.place.engine,
        seed=trial.seed,
        samples_dir=samples_dir,
        sample_stem=f"{trial.trial_id}-{attempt}",
        progress=progress,
        cancelled=cancelled,
        measuring_processes=lambda host, pid: measuring.setdefault(host, set()).add(pid),
        owner_pid=lab.place.owner_pid,
        link=lab.link,
        link_mtu_bytes=lab.client.mtu_bytes,
        outside=outside.paths,
        lateness_floor_ns=limits.sender_lateness,
        lateness_gap_ratio=limits.sender_lateness_gap,
        receive_time=receive_time(tunnel_up),
        one_clock=lab.place.one_clock,
        emulated=lab.place.stratum is Stratum.EMULATED,
    )
    # Whatever is on the link then is the tunnel's.
    alone = up is tunnel_up is not outside and not any(load.outside for load in background)
    faults = Faults(lab.logs, context.sample_stem)
    started, start_ns = datetime.now(UTC), time.monotonic_ns()
    with faults.caught("trial"):
        drained_s = wait_until_quiet(lab)
        limits_of = lab.place.limits
        held = {name: limit.throttled() for name, limit in limits_of.items()}
        ran = {name: limit.run_ns() for name, limit in limits_of.items()}
        cpu = CpuProbe(lambda: _groups(lab, tunnel_up, measuring), lab.place.cpu)
        losses = LossWatch(lab, up)
        before = lab.counters()
        lab.restart_schedule()
        hosts = {"client": lab.client_host, "server": lab.server_host}
        loads = (workload, *(load.workload for load in background))
        with (
            congestion(hosts, loads, lab.place.allow_congestion) as tcp,
            watching(lab, probes, context.sample_stem) as passed,
        ):
            started, start_ns = datetime.now(UTC), time.monotonic_ns()
            cpu.start(start_ns)
            outcome = _NOTHING
            with (
                _Sampling(
                    cpu,
                    _SAMPLE_EMULATED_S if lab.place.stratum is Stratum.EMULATED else _SAMPLE_S,
                    faults,
                ),
                faults.caught("workload"),
            ):
                outcome = _outcome(workload, background, context)
            end_ns = time.monotonic_ns()
            usage = cpu.stop(end_ns)
        after = lab.counters()
        found = Findings()
        with faults.caught("probes"):
            found = findings(
                passed,
                lab,
                outcome,
                proofs=proofs,
                payload_sizes=workload.payload_sizes,
                samples_dir=samples_dir,
            )
        lost = Losses({})
        with faults.caught("losses"):
            lost = losses.stop(outcome.details, before, after)
        with faults.caught("tunnel"):
            faults.checks.append(evidence.tunnel_check(tunnel_problem()))
            if up is tunnel_up:
                faults.checks.append(evidence.agreed_check(check_agreed))
        checks = [
            *outcome.checks,
            *standing,
            *evidence.cpu_checks(usage, limits, measuring_s=outcome.measuring_s),
            *evidence.link_checks(before, after, lab.problem(), limits, direct=lab.direct),
            *(foreign_check(before, after, [up.wire]) if alone else ()),
            *lost.checks(),
            *found.checks,
            *tcp.check(outcome.details),
            *faults.checks,
            *([] if lab.place.one_clock else [_TWO_CLOCKS]),
        ]
        if cancelled():
            checks.append(_INTERRUPTION)
        common = evidence.run_metrics(
            usage,
            before,
            after,
            payload_bytes=outcome.payload_bytes,
            payload_packets=outcome.payload_packets,
            measuring_s=outcome.measuring_s,
            in_programs=up is tunnel_up
            and all(agreed.data_path is DataPath.USER_SPACE for agreed in up.negotiated),
        ) | evidence.device_metrics(
            usage,
            {name: limit.capacity for name, limit in limits_of.items()},
            {name: limit.throttled().since(held[name]) for name, limit in limits_of.items()},
            {name: _since(limit.run_ns(), ran[name]) for name, limit in limits_of.items()},
            measuring_s=outcome.measuring_s,
        )
        common |= lost.metrics(sent_packets(outcome.details)) | found.metrics
        return TrialResult(
            trial=trial,
            attempt=attempt,
            started_at=started,
            duration_s=(end_ns - start_ns) / 1e9,
            measurements=_known(
                lab.place, _with_common(outcome, common, proofs, workload.payload_sizes)
            ),
            validity=Validity(tuple(checks)),
            details={
                **outcome.details,
                "measuring_s": outcome.measuring_s,
                "receive_time": context.receive_time,
                "instrument_floor": None if floor is None else asdict(floor),
                "drained_s": drained_s,
                "cpu_s": {name: vars(group) for name, group in usage.groups.items()},
                "cores": [vars(core) for core in usage.cores],
                "seconds": _seconds(lab, usage, start_ns),
                "losses": lost.told(),
                **tcp.told(),
                **found.details,
            },
            samples=outcome.samples,
        )
    checks = [*faults.checks, *([_INTERRUPTION] if cancelled() else [])]
    lasted_s = (time.monotonic_ns() - start_ns) / 1e9
    return TrialResult(trial, attempt, started, lasted_s, (), Validity(tuple(checks)))


def receive_time(tunnel: TunnelUp) -> ReceiveTime:
    """Return when a packet has arrived, for every trial of the block: the baseline is paired.

    Within a namespace the kernel keeps the outer packet's time of arrival for what it finds inside,
    so decapsulation would be in no delay. Behind a tunnel in the kernel a packet has arrived when
    the program has it; a TUN stamps it anew when the tunnel's program is done with it.
    """
    in_kernel = {DataPath.KERNEL, DataPath.KERNEL_THREADS}
    return "user" if any(n.data_path in in_kernel for n in tunnel.negotiated) else "kernel"


def _since(now_ns: int | None, then_ns: int | None) -> float | None:
    return None if now_ns is None or then_ns is None else (now_ns - then_ns) / 1e9


def _seconds(lab: Lab, usage: CpuUsage, start_ns: int) -> dict[str, object]:
    """Return what was seen second by second."""
    reports = lab.reports(start_ns)
    link = link_seconds(
        [(at, {"forward": seen.forward, "reverse": seen.reverse}) for at, seen in reports],
        start_ns,
        header_bytes=reports[0][1].header_bytes if reports else 0,
    )
    return {"link": link, "cpu": cpu_seconds(usage.seconds)}


class _Sampling:
    """Samples the CPU while a trial runs, so that what processes used before their end is seen."""

    def __init__(self, probe: CpuProbe, every_s: float, faults: Faults) -> None:
        self._probe = probe
        self._every_s = every_s
        self._faults = faults
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu samples", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with self._faults.caught("cpu_samples"):
            while not self._end.wait(self._every_s):
                self._probe.sample(time.monotonic_ns())


def _outcome(workload: Workload, background: Sequence[Load], context: TrialContext) -> Outcome:
    if not background:
        return workload.run(context)
    if workload.wants_background:
        return workload.run(
            replace(context, beside=lambda job: run_beside(context, background, job))
        )
    return run_beside(context, background, workload.run)


def _groups(lab: Lab, tunnel: TunnelUp, measuring: Mapping[str, set[int]]) -> dict[str, set[int]]:
    hosts = {"client": lab.client_host, "server": lab.server_host}
    groups = {name: {p.pid for p in hosts[name].spawned} for name in _HOSTS}
    groups["tunnel"] = {process.pid for _, process in tunnel.processes}
    for name in _HOSTS:
        groups[f"{evidence.MEASURING} {name}"] = set(measuring.get(name, ()))
    for name, limit in lab.place.limits.items():
        inside = {p.pid for p in hosts[name].spawned if limit.applies(p.argv)}
        groups[f"{evidence.DEVICE} {name}"] = inside
        held = groups.setdefault(evidence.HELD, set())
        held |= inside & groups["tunnel"]
    if lab.emulator is not None:
        groups[evidence.LINK] = {lab.emulator.pid}
    return groups


def _known(place: Place, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return the figures without those that one clock at both ends is needed for."""
    if place.one_clock:
        return tuple(measurements)
    return tuple(
        replace(one, metrics={k: v for k, v in one.metrics.items() if not METRICS[k].one_clock})
        for one in measurements
    )


def _with_common(
    outcome: Outcome,
    common: Mapping[str, float | None],
    proofs: tuple[WireProof, ...],
    payload_sizes: tuple[int, ...],
) -> tuple[Measurement, ...]:
    """Add the run's own metrics to the total, and the overhead seen on the wire."""
    wire: dict[str, float | None] = {}
    if len(outcome.measurements) > _TOTAL_AND_ONE:
        wire["paths_fairness_ratio"] = evidence.fairness(outcome.measurements)
    for sample in proofs[0].samples if proofs else ():
        if (sample.payload_bytes,) == payload_sizes:
            wire |= {
                "overhead_bytes": float(sample.overhead_bytes),
                "outer_packets": float(sample.fragments),
            }
    return tuple(
        replace(m, metrics={**m.metrics, **common, **wire}) if m.path == "total" else m
        for m in outcome.measurements
    )
