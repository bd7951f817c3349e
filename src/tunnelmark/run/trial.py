"""One trial: probes start, workload, probes stop, verdict."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tunnelmark.lab.lab import Lab
from tunnelmark.model.block import WireProof
from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.model.validity import Check, Validity
from tunnelmark.probes.cpu import CpuProbe, CpuUsage
from tunnelmark.probes.series import cpu_seconds, link_seconds
from tunnelmark.run import evidence
from tunnelmark.run.losses import LossWatch, sent_packets
from tunnelmark.run.passing import findings, watching
from tunnelmark.study.study import Limits, Probes
from tunnelmark.workloads.background import Load, run_beside
from tunnelmark.workloads.base import Outcome, Progress, TrialContext, Workload

INTERRUPTED = "not_interrupted"
"""Name of the check that fails when the run was asked to end in mid-trial."""
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
    probes: Probes,
    tunnel_problem: Callable[[], str | None],
    proofs: tuple[WireProof, ...],
    samples_dir: Path | None,
    progress: Callable[[Progress], None],
    cancelled: Callable[[], bool],
) -> TrialResult:
    """Run one trial over ``up`` (the tunnel, or none) while ``tunnel_up`` is there beside it.

    ``outside`` are the paths of background that does not go through the tunnel.

    Never raises for a failure of the system under test or of the measurement: the result is invalid
    and says why.
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
    )
    limits_of = lab.place.limits
    held = {name: limit.throttled() for name, limit in limits_of.items()}
    ran = {name: limit.run_ns() for name, limit in limits_of.items()}
    cpu = CpuProbe(lambda: _groups(lab, tunnel_up, measuring), lab.place.cpu)
    losses = LossWatch(lab, up)
    before = lab.counters()
    lab.restart_schedule()
    with watching(lab, probes, context.sample_stem) as passed:
        started = datetime.now(UTC)
        start_ns = time.monotonic_ns()
        cpu.start(start_ns)
        with _Sampling(cpu, _SAMPLE_EMULATED_S if lab.place.emulated else _SAMPLE_S):
            outcome = _outcome(workload, background, context)
        end_ns = time.monotonic_ns()
        usage = cpu.stop(end_ns)
    after = lab.counters()
    found = findings(
        passed,
        lab,
        outcome,
        proofs=proofs,
        payload_sizes=workload.payload_sizes,
        samples_dir=samples_dir,
    )
    lost = losses.stop(outcome.details, before, after)
    checks = [
        *outcome.checks,
        *evidence.cpu_checks(usage, limits, measuring_s=outcome.measuring_s),
        *evidence.link_checks(before, after, lab.problem(), limits),
        evidence.tunnel_check(tunnel_problem()),
        *lost.checks(),
        *found.checks,
    ]
    if cancelled():
        checks.append(Check(INTERRUPTED, ok=False, message="the run was interrupted"))
    common = evidence.run_metrics(
        usage,
        before,
        after,
        payload_bytes=outcome.payload_bytes,
        payload_packets=outcome.payload_packets,
        measuring_s=outcome.measuring_s,
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
        measurements=_with_common(outcome, common, proofs, workload.payload_sizes),
        validity=Validity(tuple(checks)),
        details={
            **outcome.details,
            "measuring_s": outcome.measuring_s,
            "cpu_s": {name: vars(group) for name, group in usage.groups.items()},
            "cores": [vars(core) for core in usage.cores],
            "seconds": _seconds(lab, usage, start_ns),
            "losses": lost.told(),
            **found.details,
        },
        samples=outcome.samples,
    )


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

    def __init__(self, probe: CpuProbe, every_s: float) -> None:
        self._probe = probe
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu samples", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            self._probe.sample(time.monotonic_ns())


def _outcome(workload: Workload, background: Sequence[Load], context: TrialContext) -> Outcome:
    try:
        if not background:
            return workload.run(context)
        if workload.wants_background:
            return workload.run(
                replace(context, beside=lambda job: run_beside(context, background, job))
            )
        return run_beside(context, background, workload.run)
    except TunnelmarkError as error:
        return Outcome((), (Check("workload", ok=False, message=str(error)),), 0, 0, 0.0)


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
        groups["link"] = {lab.emulator.pid}
    return groups


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
