"""A workload with loads beside it: they run before it begins and until it has ended."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tunnelmark.model.faults import one_line
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec, Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload, ports_of
from tunnelmark.workloads.registry import workload_kinds

START_LIMIT_S: Final = 30.0
"""So long a load may take until it moves something; an emulated machine takes seconds."""
_FAILURES: Final = frozenset({"processes", "workload", "programs"})


@dataclass(frozen=True)
class Load:
    """A load beside a workload."""

    label: str
    workload: Workload
    outside: bool
    """Beside the tunnel, on the same link."""


def loads_of(spec: DriverSpec) -> tuple[Load, ...]:
    """Return the loads that a workload has beside it."""
    return tuple(
        Load(
            one.label,
            make(workload_kinds(), DriverSpec(one.kind, one.label, one.params)),
            one.path == "outside",
        )
        for one in spec.background
    )


def context_of(context: TrialContext, load: Load, *, number: int, run: int) -> TrialContext:
    """Return what the ``number``-th load is handed for one of its runs."""
    return dataclasses.replace(
        context,
        paths=context.outside if load.outside else context.paths,
        seed=context.seed + 1_000_003 * (number + 1) + run,
        samples_dir=None,
        sample_stem=f"{context.sample_stem}-background-{number}-{run}",
        is_background=True,
        # Whether the measuring programs were too busy is asked of those that measure.
        measuring_processes=lambda _host, _pid: None,
        first_port=context.first_port + ports_of(len(context.paths)) * (number + 1),
    )


def run_beside(
    context: TrialContext, loads: Sequence[Load], job: Callable[[TrialContext], Outcome]
) -> Outcome:
    """Start the loads, run the job, end the loads; the job's outcome with theirs beside it.

    A load that fails, or does not begin, is a failed check of the trial: what it should have
    disturbed was not disturbed.
    """
    runners = [_Runner(context, load, number) for number, load in enumerate(loads)]
    try:
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.wait()
        outcome = job(context)
    finally:
        for runner in runners:
            runner.over.set()
        for runner in runners:
            runner.thread.join()
    return merged(outcome, runners)


@dataclass
class Ran:
    """What came of a load, run by run."""

    context: TrialContext
    load: Load
    number: int
    outcomes: list[Outcome] = field(default_factory=list)
    error: str | None = None
    late: str | None = None

    def add(self, outcome: Outcome) -> bool:
        """Add what a run came to; False where that is not what was asked for."""
        self.outcomes.append(outcome)
        if failed := _failed(outcome):
            self.error = failed
        return not failed

    def check(self) -> Check:
        """Return whether the load was as asked for."""
        name = f"background_{self.load.label}"
        if (failed := self.error or self.late) is not None:
            return Check(name, ok=False, message=f"background {self.load.label}: {failed}")
        if not self.outcomes:
            return Check(name, ok=False, message=f"background {self.load.label} did not run")
        return Check(
            name,
            ok=True,
            message=f"background {self.load.label}: {self.payload_bytes} bytes of payload "
            f"delivered in {self.measuring_s:.1f} s",
        )

    @property
    def payload_bytes(self) -> int:
        """Payload that was delivered, both ways."""
        return sum(outcome.payload_bytes for outcome in self.outcomes)

    @property
    def payload_packets(self) -> int:
        """Datagrams that were delivered, both ways."""
        return sum(outcome.payload_packets for outcome in self.outcomes)

    @property
    def measuring_s(self) -> float:
        """Seconds in which traffic was under way."""
        return sum(outcome.measuring_s for outcome in self.outcomes)

    def reported(self) -> dict[str, object]:
        """Return what each run counted, for the details of the trial."""
        return {
            "kind": self.load.workload.kind,
            "path": "outside" if self.load.outside else "inside",
            "payload_bytes": self.payload_bytes,
            "payload_packets": self.payload_packets,
            "measuring_s": self.measuring_s,
            "runs": [
                {"metrics": [{"path": m.path, **m.metrics} for m in outcome.measurements]}
                for outcome in self.outcomes
            ],
        }


@dataclass
class _Runner(Ran):
    """One load on a thread of its own, begun again as often as it ends by itself."""

    over: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"background {self.load.label}")
        self.thread.start()

    def wait(self) -> None:
        """Wait until it moves something, has failed or is late."""
        if not self.begun.wait(START_LIMIT_S):
            self.late = f"transferred nothing within {START_LIMIT_S:g} s"

    def _run(self) -> None:
        try:
            while not self.over.is_set() and not self.context.cancelled():
                as_asked = self.add(self.load.workload.run(self._own(len(self.outcomes))))
                # A short one ends before it reports any progress.
                self.begun.set()
                if not as_asked:
                    break
        except Exception as error:  # noqa: BLE001 - reported in its check: none waits for it
            self.error = one_line(error)
        finally:
            self.begun.set()

    def _own(self, run: int) -> TrialContext:
        def progress(_progress: Progress) -> None:
            self.begun.set()

        own = context_of(self.context, self.load, number=self.number, run=run)
        return dataclasses.replace(own, progress=progress, enough=self.over.is_set)


def _failed(outcome: Outcome) -> str | None:
    """Return why a load is not as requested; how exactly it kept its times does not matter."""
    reasons = [check.message for check in outcome.checks if not check.ok and _matters(check)]
    return "; ".join(reasons) or None


def _matters(check: Check) -> bool:
    return any(check.name.startswith(name) for name in _FAILURES)


def merged(outcome: Outcome, runners: Sequence[Ran]) -> Outcome:
    """Return an outcome with what came of the loads beside it."""
    figures = {
        "background_bit_s": _sum(runners, lambda one: 8 * one.payload_bytes),
        "background_packet_s": _sum(runners, lambda one: one.payload_packets),
    }
    inside = [runner for runner in runners if not runner.load.outside]
    outside = [runner for runner in runners if runner.load.outside]
    return dataclasses.replace(
        outcome,
        measurements=tuple(_with(measurement, figures) for measurement in outcome.measurements),
        checks=(*outcome.checks, *(runner.check() for runner in runners)),
        # The tunnel carried theirs too, which its CPU cost is counted by.
        payload_bytes=outcome.payload_bytes + sum(runner.payload_bytes for runner in inside),
        payload_packets=outcome.payload_packets + sum(runner.payload_packets for runner in inside),
        outside_bytes=sum(runner.payload_bytes for runner in outside),
        outside_packets=sum(runner.payload_packets for runner in outside),
        # The link was loaded for as long as any of them lasted.
        measuring_s=max([outcome.measuring_s, *(runner.measuring_s for runner in runners)]),
        details={
            **outcome.details,
            "background": {runner.load.label: runner.reported() for runner in runners},
        },
    )


def _sum(runners: Sequence[Ran], amount: Callable[[Ran], int]) -> float | None:
    rates = [amount(one) / one.measuring_s for one in runners if one.measuring_s > 0]
    return sum(rates) if len(rates) == len(runners) else None


def _with(measurement: Measurement, figures: dict[str, float | None]) -> Measurement:
    if measurement.path != "total":
        return measurement
    return dataclasses.replace(measurement, metrics={**measurement.metrics, **figures})
