"""A workload with loads beside it: they run before it begins and until it has ended."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tunnelmark.model.faults import told
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload

START_LIMIT_S: Final = 30.0
"""So long a load may take until it moves something; an emulated machine takes seconds."""
_PORTS: Final = 16
_FAILURES: Final = frozenset({"processes", "workload", "programs"})


@dataclass(frozen=True)
class Load:
    """A load beside a workload."""

    label: str
    workload: Workload
    outside: bool
    """Beside the tunnel, on the same link."""


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
    return _merged(outcome, runners)


@dataclass
class _Runner:
    """One load on a thread of its own, begun again as often as it ends by itself."""

    context: TrialContext
    load: Load
    number: int
    over: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    outcomes: list[Outcome] = field(default_factory=list)
    error: str | None = None
    late: str | None = None

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
                outcome = self.load.workload.run(self._own(len(self.outcomes)))
                self.outcomes.append(outcome)
                # A short one ends before it reports any progress.
                self.begun.set()
                if failed := _failed(outcome):
                    self.error = failed
                    break
        except Exception as error:  # noqa: BLE001 - reported in its check: none waits for it
            self.error = told(error)
        finally:
            self.begun.set()

    def _own(self, run: int) -> TrialContext:
        def progress(_progress: Progress) -> None:
            self.begun.set()

        paths = self.context.outside if self.load.outside else self.context.paths
        return dataclasses.replace(
            self.context,
            paths=paths,
            seed=self.context.seed + 1_000_003 * (self.number + 1) + run,
            samples_dir=None,
            sample_stem=f"{self.context.sample_stem}-background-{self.number}-{run}",
            progress=progress,
            enough=self.over.is_set,
            is_background=True,
            # Whether the measuring programs were too busy is asked of those that measure.
            measuring_processes=lambda _host, _pid: None,
            first_port=self.context.first_port + _PORTS * (self.number + 1),
        )

    def check(self) -> Check:
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
        return sum(outcome.payload_bytes for outcome in self.outcomes)

    @property
    def payload_packets(self) -> int:
        return sum(outcome.payload_packets for outcome in self.outcomes)

    @property
    def measuring_s(self) -> float:
        return sum(outcome.measuring_s for outcome in self.outcomes)

    def told(self) -> dict[str, object]:
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


def _failed(outcome: Outcome) -> str | None:
    """Return why a load is not as requested; how exactly it kept its times does not matter."""
    reasons = [check.message for check in outcome.checks if not check.ok and _matters(check)]
    return "; ".join(reasons) or None


def _matters(check: Check) -> bool:
    return any(check.name.startswith(name) for name in _FAILURES)


def _merged(outcome: Outcome, runners: Sequence[_Runner]) -> Outcome:
    figures = {
        "background_bit_s": _sum(runners, lambda one: 8 * one.payload_bytes),
        "background_packet_s": _sum(runners, lambda one: one.payload_packets),
    }
    inside = [runner for runner in runners if not runner.load.outside]
    return dataclasses.replace(
        outcome,
        measurements=tuple(_with(measurement, figures) for measurement in outcome.measurements),
        checks=(*outcome.checks, *(runner.check() for runner in runners)),
        # The tunnel carried theirs too, which its CPU cost is counted by.
        payload_bytes=outcome.payload_bytes + sum(runner.payload_bytes for runner in inside),
        payload_packets=outcome.payload_packets + sum(runner.payload_packets for runner in inside),
        # The link was loaded for as long as any of them lasted.
        measuring_s=max([outcome.measuring_s, *(runner.measuring_s for runner in runners)]),
        details={
            **outcome.details,
            "background": {runner.load.label: runner.told() for runner in runners},
        },
    )


def _sum(runners: Sequence[_Runner], amount: Callable[[_Runner], int]) -> float | None:
    rates = [amount(one) / one.measuring_s for one in runners if one.measuring_s > 0]
    return sum(rates) if len(rates) == len(runners) else None


def _with(measurement: Measurement, figures: dict[str, float | None]) -> Measurement:
    if measurement.path != "total":
        return measurement
    return dataclasses.replace(measurement, metrics={**measurement.metrics, **figures})
