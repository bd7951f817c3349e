"""One trial: probes start, workload, probes stop, verdict."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from tunnelmark.hosts.cgroup import busiest_since
from tunnelmark.lab.emulators import ETHERNET_HEADER_BYTES, LinkCounters
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session import evidence
from tunnelmark.lab.session.awake import Awake
from tunnelmark.lab.session.congestion import InForce, congestion
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.lab.session.joins import Joins
from tunnelmark.lab.session.losses import Losses, LossWatch, sent_packets
from tunnelmark.lab.session.passing import Findings, findings, watching
from tunnelmark.lab.session.proving import proofs_after
from tunnelmark.lab.session.quiet import wait_until_quiet
from tunnelmark.lab.session.set_ups import SetUps
from tunnelmark.lab.session.stand import Side, Stand, Task, receive_time
from tunnelmark.lab.session.two_clocks import CLOCK_WIRE, TwoClocks
from tunnelmark.model.block import ProofVerdict, Stratum, WireProof
from tunnelmark.model.caught import Faults
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.seeds import stream
from tunnelmark.model.session import Observer
from tunnelmark.model.trial import Measurement, TrialResult
from tunnelmark.model.tunnel import DataPath, WireRule
from tunnelmark.model.validity import INTERRUPTED, Check, Validity
from tunnelmark.probes.carried import fairness
from tunnelmark.probes.cpu import CpuProbe, CpuUsage
from tunnelmark.probes.series import cpu_seconds, link_seconds
from tunnelmark.workloads.background import run_beside
from tunnelmark.workloads.base import Outcome, TrialContext

_INTERRUPTION = Check(INTERRUPTED, ok=False, message="the run was interrupted")
_NOTHING = Outcome((), (), 0, 0, 0.0)
"""What a workload came to that broke."""
_HOSTS = ("client", "server")
_TOTAL_AND_ONE = 2
"""Measurements of a trial over one path."""


def run_trial(
    stand: Stand, side: Side, task: Task, observer: Observer, set_ups: SetUps | None = None
) -> TrialResult:
    """Run one trial over a side of what stands, its tunnel or nothing beside it.

    A workload that restarts the tunnel, or clients of it, does so by ``set_ups``, which then has
    what stands.

    Never raises for a failure of the system under test or of the measurement, or for a mistake in a
    workload, probe or driver: the result is invalid and says why. ``UnwritableError`` comes out.
    """
    faults = Faults(stand.lab.logs, task.name)
    running = _Running(stand, side, task, observer, faults, set_ups)
    with running.faults.caught("trial"):
        return running.result()
    return running.broken()


@dataclass
class _Running:
    """A trial under way."""

    stand: Stand
    side: Side
    task: Task
    observer: Observer
    faults: Faults
    set_ups: SetUps | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    start_ns: int = field(default_factory=time.monotonic_ns)
    measuring: dict[str, set[int]] = field(default_factory=dict)
    """Processes that measure, by host."""
    awake: Awake = field(default_factory=Awake)
    clocks: TwoClocks | None = None
    """None: both ends have one."""
    _beginning: threading.Lock = field(default_factory=threading.Lock)
    """Loads beside the workload begin on threads of their own."""
    _begun: bool = False

    @property
    def lab(self) -> Lab:
        return self.stand.lab

    @property
    def on_tunnel(self) -> bool:
        return self.side.up is self.stand.own.up

    def broken(self) -> TrialResult:
        """Return what is left of a trial that could not be judged."""
        checks = [*self.faults.checks, *self._interruption()]
        lasted_s = (time.monotonic_ns() - self.start_ns) / 1e9
        validity = Validity(tuple(checks))
        return TrialResult(
            trial=self.task.trial,
            attempt=self.task.attempt,
            started_at=self.started,
            duration_s=lasted_s,
            measurements=(),
            validity=validity,
            stratum=self.lab.place.stratum,
        )

    def result(self) -> TrialResult:
        lab, limits = self.lab, self.lab.place.limits
        drained_s = wait_until_quiet(lab)
        held = {name: limit.throttled() for name, limit in limits.items()}
        ran = {name: limit.run_ns() for name, limit in limits.items()}
        cpu = CpuProbe(self._groups, lab.place.cpu)
        if not lab.place.one_clock:
            base = self.stand.base.up.paths[:1]
            self.clocks = TwoClocks(self._context(), base, self.task.name, self.stand.latest)
            with self.faults.caught("clocks"):
                self.clocks.begin()
        losses = LossWatch(lab, self.side.up)
        if self.clocks is not None:
            self.clocks.restart_count()
        before = lab.begin()
        hosts = {"client": lab.client_host, "server": lab.server_host}
        loads = (self.task.workload, *(load.workload for load in self.task.background))
        with (
            congestion(hosts, loads, lab.place.allow_congestion) as tcp,
            watching(lab, self.stand.probes, self.task.name) as passed,
        ):
            self.started, self.start_ns = datetime.now(UTC), time.monotonic_ns()
            cpu.start(self.start_ns)
            outcome = _NOTHING
            with (
                _Sampling(cpu, self.stand.sample_s, self.faults),
                self.faults.caught("workload"),
            ):
                outcome = _outcome(self.task, self._context())
            end_ns = time.monotonic_ns()
            usage = cpu.stop(end_ns)
        after = lab.counters()
        if self.set_ups is not None:
            with self.faults.caught("set_ups"):
                self._prove_again(self.set_ups)
        found = Findings()
        with self.faults.caught("probes"):
            found = findings(
                passed,
                lab,
                outcome,
                paths=self.side.up.paths,
                proofs=self.side.proofs,
                payload_sizes=self.task.workload.payload_sizes,
                samples_dir=self.stand.samples_dir,
            )
        lost = Losses({})
        if self.set_ups is None:
            # Else the counters of the tunnel's interfaces began again with it.
            with self.faults.caught("losses"):
                lost = losses.stop(outcome.details, before, after)
        self._ask_tunnel()
        device = evidence.device_metrics(
            usage,
            {name: limit.capacity for name, limit in limits.items()},
            {name: busiest_since(one.throttled(), held[name]) for name, one in limits.items()},
            {name: _since(limit.run_ns(), ran[name]) for name, limit in limits.items()},
            measuring_s=outcome.measuring_s,
        )
        seen = _SeenTrial(outcome, usage, before, after, found, lost, tcp, drained_s)
        return TrialResult(
            trial=self.task.trial,
            attempt=self.task.attempt,
            started_at=self.started,
            duration_s=(end_ns - self.start_ns) / 1e9,
            validity=Validity(tuple(self._checks(seen))),
            measurements=self._measurements(seen, device),
            details=self._details(seen),
            samples=outcome.samples,
            stratum=lab.place.stratum,
        )

    def _prove_again(self, set_ups: SetUps) -> None:
        """Have the tunnel up for what follows, and prove by wire that it is what was asked for."""
        own = self.on_tunnel
        set_ups.restore()
        self.stand = set_ups.stand
        if not own:
            return
        self.side = self.stand.own
        if set_ups.lost is not None:
            # A tunnel that does not come up is a figure of this trial; the next one has a new lab.
            words = f"the tunnel did not come up again after the trial: {set_ups.lost}"
            self.faults.checks.append(Check("proved_again", ok=True, message=words))
            return
        for proof in proofs_after(
            self.lab,
            self.side.up,
            seed=lambda name: stream(self.task.trial.seed, name),
            keep=lambda _name, _pcap: None,
        ):
            self.faults.checks.append(
                Check(
                    "proved_again",
                    ok=proof.verdict is not ProofVerdict.SAW_WRONG,
                    message=f"the proof by wire after the set-ups: {proof.message}",
                )
            )

    def _ask_tunnel(self) -> None:
        if self.set_ups is not None and self.set_ups.lost is not None:
            return
        with self.faults.caught("tunnel"):
            self.faults.checks.append(evidence.tunnel_check(self.stand.tunnel.problem()))
            if self.on_tunnel:
                self.faults.checks.append(evidence.agreed_check(self.stand.tunnel.check_agreed))

    def _checks(self, seen: "_SeenTrial") -> list[Check]:
        lab, limits = self.lab, self.stand.limits
        outcome = seen.outcome
        outside = any(load.outside for load in self.task.background)
        # Whatever is on the link then is the tunnel's.
        alone = self.on_tunnel and self.side.up is not self.stand.base.up and not outside
        return [
            *outcome.checks,
            *self.side.standing,
            *evidence.cpu_checks(seen.usage, limits, measuring_s=outcome.measuring_s),
            *evidence.device_checks(
                seen.usage,
                {name: limit.capacity for name, limit in lab.place.limits.items()},
                {name: limit.cpus for name, limit in lab.place.limits.items()},
                measuring_s=outcome.measuring_s,
            ),
            *evidence.link_checks(
                seen.before,
                seen.after,
                lab.problem(),
                limits,
                apart_ns=outcome.apart_ns,
                direct=lab.direct,
            ),
            *(foreign_check(seen.before, seen.after, self._wires()) if alone else ()),
            *seen.lost.checks(),
            *seen.found.checks,
            *seen.tcp.check(outcome.details),
            *self.faults.checks,
            *(() if self.clocks is None else (self.clocks.check(),)),
            *self._interruption(),
        ]

    def _measurements(
        self, seen: "_SeenTrial", device: Mapping[str, float | None]
    ) -> tuple[Measurement, ...]:
        outcome = seen.outcome
        awake_s = self.awake.seconds(seen.usage, seen.before, seen.after)
        # An emulator beside the machines ran on none of the cores that are read.
        link_beside = self.lab.place.link_owner_pid != self.lab.place.owner_pid
        common = evidence.run_metrics(
            seen.usage,
            seen.before,
            seen.after if self.clocks is None else self.clocks.without(seen.after),
            awake_s=awake_s,
            awake_beside_s=awake_s - self.awake.seconds(seen.usage, None, None)
            if link_beside
            else 0.0,
            payload_bytes=outcome.payload_bytes,
            payload_packets=outcome.payload_packets,
            outside_bytes=outcome.outside_bytes,
            measuring_s=outcome.measuring_s,
            in_programs=self.on_tunnel
            and all(agreed.data_path is DataPath.USER_SPACE for agreed in self.side.up.negotiated),
        )
        common |= device
        if self.set_ups is not None:
            common = evidence.of_no_data_path(common)
        common |= seen.lost.metrics(sent_packets(outcome.details)) | seen.found.metrics
        sizes = self.task.workload.payload_sizes
        measured = _with_common(outcome, common, self.side.proofs, sizes)
        return measured if self.clocks is None else _known(measured, self.clocks.error_ns)

    def _wires(self) -> tuple[WireRule, ...]:
        """Return what may be on the link: the tunnel, and what the clocks are compared by."""
        own = (self.side.up.wire,)
        return own if self.clocks is None else (*own, CLOCK_WIRE)

    def _details(self, seen: "_SeenTrial") -> dict[str, object]:
        floor = self.stand.floor
        return {
            **seen.outcome.details,
            "measuring_s": seen.outcome.measuring_s,
            "receive_time": receive_time(self.stand.own.up),
            "instrument_floor": None if floor is None else asdict(floor),
            "drained_s": seen.drained_s,
            "cpu_s": {name: vars(group) for name, group in seen.usage.groups.items()},
            "cores": [vars(core) for core in seen.usage.cores],
            "seconds": _seconds(self.lab, seen.usage, self.start_ns),
            "losses": seen.lost.reported(),
            **({} if self.clocks is None else self.clocks.reported()),
            **seen.tcp.reported(),
            **seen.found.details,
        }

    def _begins(self) -> None:
        """Let changes of the link begin with the first traffic, whose programs are all there."""
        with self._beginning:
            if not self._begun and self.lab.link is not None and self.lab.link.has_schedule:
                self.lab.begin()
            self._begun = True

    def _interruption(self) -> list[Check]:
        return [_INTERRUPTION] if self.observer.cancelled() else []

    def _context(self) -> TrialContext:
        lab, limits, trial = self.lab, self.stand.limits, self.task.trial
        return TrialContext(
            client=lab.client_host,
            server=lab.server_host,
            paths=self.side.up.paths,
            engine=lab.place.engine,
            seed=trial.seed,
            samples_dir=self.stand.samples_dir,
            sample_stem=self.task.name,
            progress=lambda progress: self.observer.progress(trial, progress),
            cancelled=self.observer.cancelled,
            measuring_processes=lambda host, pid: self.measuring.setdefault(host, set()).add(pid),
            waited_awake=self.awake.sender,
            begins=self._begins,
            owner_pid=lab.place.owner_pid,
            spin=lab.spin,
            link=lab.link,
            link_mtu_bytes=lab.client.mtu_bytes,
            alone=not self.task.background,
            outside=self.stand.base.up.paths,
            lateness_floor_ns=limits.sender_lateness,
            lateness_gap_ratio=limits.sender_lateness_gap,
            receive_time=receive_time(self.stand.own.up),
            one_clock=lab.place.one_clock,
            to_one_clock=None if self.clocks is None else self.clocks.to_one_clock,
            emulated=lab.place.stratum is Stratum.EMULATED,
            set_up=None if self.set_ups is None else self.set_ups.again,
            joining=self.set_ups if isinstance(self.set_ups, Joins) else None,
        )

    def _groups(self) -> dict[str, set[int]]:
        """Return the processes whose CPU time is looked at, by what they are for."""
        lab = self.lab
        hosts = {"client": lab.client_host, "server": lab.server_host}
        groups = {name: {p.pid for p in hosts[name].spawned} for name in _HOSTS}
        groups["client"] |= {p.pid for host in lab.client_hosts for p in host.spawned}
        # A workload that sets the tunnel up again has other programs each time.
        now = self.stand if self.set_ups is None else self.set_ups.stand
        own = now.own.up.processes
        groups[evidence.TUNNEL] = {process.pid for _, process in own}
        ends = {name: {p.pid for host, p in own if host == hosts[name].name} for name in _HOSTS}
        if lab.is_gateway:
            groups[evidence.GATEWAY] = ends["server"]
        else:
            groups |= {f"{evidence.TUNNEL} {name}": pids for name, pids in ends.items()}
        for name in _HOSTS:
            groups[f"{evidence.MEASURING} {name}"] = set(self.measuring.get(name, ()))
        for name, limit in lab.place.limits.items():
            inside = {p.pid for p in hosts[name].spawned if limit.applies(p.argv)}
            groups[f"{evidence.DEVICE} {name}"] = inside
            held = groups.setdefault(evidence.HELD, set())
            held |= inside & groups[evidence.TUNNEL]
        if lab.emulators:
            groups[evidence.LINK] = {emulator.pid for emulator in lab.emulators}
        return groups


@dataclass(frozen=True)
class _SeenTrial:
    """All that a trial has shown."""

    outcome: Outcome
    usage: CpuUsage
    before: LinkCounters | None
    after: LinkCounters | None
    found: Findings
    lost: Losses
    tcp: InForce
    drained_s: float


def _since(now_ns: int | None, then_ns: int | None) -> float | None:
    return None if now_ns is None or then_ns is None else (now_ns - then_ns) / 1e9


def _seconds(lab: Lab, usage: CpuUsage, start_ns: int) -> dict[str, object]:
    """Return what was seen second by second."""
    link = link_seconds(lab.reports(start_ns), start_ns, header_bytes=ETHERNET_HEADER_BYTES)
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


def _outcome(task: Task, context: TrialContext) -> Outcome:
    if not task.background:
        return task.workload.run(context)
    if task.workload.wants_background:
        return task.workload.run(
            replace(context, beside=lambda job: run_beside(context, task.background, job))
        )
    return run_beside(context, task.background, task.workload.run)


def _known(measurements: Sequence[Measurement], error_ns: float | None) -> tuple[Measurement, ...]:
    """Return the figures of two clocks: the one-way ones only where their error stands beside."""
    found = []
    for one in measurements:
        figures = dict(one.metrics)
        if error_ns is not None:
            figures["clock_error_ns"] = error_ns
        reported = {
            name: value
            for name, value in figures.items()
            if not METRICS[name].one_clock
            or (error_ns is not None and METRICS[name].clock_error in figures)
        }
        found.append(replace(one, metrics=reported))
    return tuple(found)


def _with_common(
    outcome: Outcome,
    common: Mapping[str, float | None],
    proofs: tuple[WireProof, ...],
    payload_sizes: tuple[int, ...],
) -> tuple[Measurement, ...]:
    """Add the run's own metrics to the total, and the overhead seen on the wire."""
    wire: dict[str, float | None] = {}
    if len(outcome.measurements) > _TOTAL_AND_ONE:
        wire["paths_fairness_ratio"] = fairness(outcome.measurements)
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
