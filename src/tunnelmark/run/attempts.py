"""One job: a session brought up, its trials, down; for each bring-up, and after a death."""

import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from tunnelmark.model.block import Attempt, BlockRecord, Phase, Stratum
from tunnelmark.model.errors import ResultError, TunnelError, TunnelmarkError
from tunnelmark.model.faults import one_line
from tunnelmark.model.job import Job
from tunnelmark.model.session import Seen, Session, Sessions, Step, Where
from tunnelmark.model.trial import Progress, Trial, TrialResult
from tunnelmark.run.events import BlockPhase
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.progress import JobProgress

MOST_ATTEMPTS: Final = 3
"""A bring-up that fails for what may be transient is tried so often."""
_INTERRUPTED: Final = "the run was interrupted"
_TIMES: Final[dict[Phase, str]] = {
    "lab": "lab_up",
    "tunnel": "tunnel_up",
    "proof": "proof",
    "warm": "warm",
}
"""Names of the steps' wall time in a record."""


@dataclass
class JobRunner:
    """Runs the open trials of a job."""

    progress: JobProgress
    backend: Sessions
    directory: Path
    """Of the result."""
    interrupts: Interrupts
    tell: Callable[[BlockPhase], None]
    trial_progress: Callable[[Trial, Progress], None]
    finished: Callable[[TrialResult, float], None]
    """Called with each result, and the seconds that the trial took on the clock on the wall."""
    recorded: Callable[[BlockRecord], None] = lambda _record: None
    """Called whenever the job is up, before its trials, and after each attempt."""
    earlier: BlockRecord | None = None
    """What sessions of this run that were interrupted have recorded."""
    _where: Where = field(default_factory=Where)
    _attempts: list[Attempt] = field(default_factory=list)

    @property
    def job(self) -> Job:
        """The job."""
        return self.progress.job

    def run(self) -> BlockRecord:
        """Run until the stop rule is met, a bring-up has failed for good, or the run is cancelled.

        What may be transient is tried again; what ends the job is in ``BlockRecord.error``.
        """
        self._attempts = list(self.earlier.attempts) if self.earlier else []
        failures: Counter[int] = Counter()
        error: str | None = None
        now = _Now(self)
        session = self.backend.open(self.job, self.directory, now)
        self._where = session.where
        while not error and (trials := self.progress.next_trials()):
            bring_up = self.progress.up = trials[0].bring_up
            now.begin(bring_up, len(self._attempts) + 1)
            try:
                attempt = self._attempt(session, now)
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
                error = f"gave up after {MOST_ATTEMPTS} attempts: {attempt.reason}"
            else:
                self.phase("again", attempt.reason)
        self.progress.up = None
        return self._record(error)

    def tell_end(self, record: BlockRecord) -> None:
        """Tell that the job has ended; what it left is then on disk, where it is copied from."""
        self.phase("failed" if record.error else "done", record.error or "")

    def _attempt(self, session: Session, now: "_Now") -> Attempt:
        """Bring the job up, run the trials of one bring-up, take it down."""
        try:
            with now.noting():
                self._live(session, now)
            if self.interrupts.requested():
                now.fail(_INTERRUPTED, transient=True)
        except Interrupted:
            now.fail(_INTERRUPTED, transient=True)
            raise
        finally:
            with self.interrupts.cleaning():
                try:
                    now.enter("down")
                finally:
                    with now.timed("down"), now.noting():
                        session.down()
            attempt = now.ended(session.seen)
            self._attempts.append(attempt)
        self.recorded(self._record(None))
        return attempt

    def _live(self, session: Session, now: "_Now") -> None:
        """Bring the job up and run its trials; raise what ends it before they are done."""
        session.up(now.bring_up, now.number)
        now.enter("trials")
        # Before the first trial: after a kill, what is on disk still says where trials ran.
        self.recorded(self._record(None, now.ended(session.seen)))
        with now.timed("trials"):
            self._trials(session, now)
        if not self.interrupts.requested():
            session.finish()

    def _trials(self, session: Session, now: "_Now") -> None:
        while (trials := self.progress.next_trials()) and trials[0].bring_up == now.bring_up:
            for trial in trials:
                if self.interrupts.requested():
                    return
                if not self.progress.is_open(trial):
                    continue
                began = time.monotonic() - now.seconds["waiting"]
                result = session.run(trial, self.progress.attempts[trial.trial_id] + 1)
                now.trials.append(f"{trial.trial_id}-{result.attempt}")
                measuring = result.details.get("measuring_s", 0.0)
                # Seconds of virtual time are no part of those that went by here.
                if isinstance(measuring, float) and result.stratum is not Stratum.SIMULATION:
                    now.seconds["measuring"] += measuring
                self.finished(result, time.monotonic() - now.seconds["waiting"] - began)
                if death := session.problem():
                    raise TunnelError(death)

    def _record(self, error: str | None, current: Attempt | None = None) -> BlockRecord:
        """Return what is known; ``current`` is an attempt that is under way."""
        attempts = (*self._attempts, *((current,) if current else ()))
        seconds: Counter[str] = Counter()
        # Those of a format without attempts.
        if self.earlier and not self.earlier.attempts:
            seconds.update(self.earlier.seconds)
        for attempt in attempts:
            seconds.update(attempt.seconds)
        # What came furthest last: an attempt that never came up has nothing to show.
        shown = max(reversed(attempts), key=_reached, default=None)
        block, where = self.job.block, self._where
        return BlockRecord(
            block_id=block.block_id,
            tunnel=block.tunnel.label,
            link=block.link.label,
            device=block.device.label,
            placed_on=where.placed_on or (self.earlier.placed_on if self.earlier else ""),
            stratum=where.stratum or (self.earlier.stratum if self.earlier else Stratum.NAMESPACES),
            negotiated=shown.negotiated if shown else (),
            baseline_negotiated=shown.baseline_negotiated if shown else (),
            proofs=shown.proofs if shown else (),
            baseline_proofs=shown.baseline_proofs if shown else (),
            seconds=dict(seconds),
            error=error,
            details={"devices": dict(where.devices)} if where.devices else {},
            baseline=block.baseline.label,
            layers=where.layers or (self.earlier.layers if self.earlier else ()),
            attempts=attempts,
            chosen=where.chosen or (self.earlier.chosen if self.earlier else None),
            notes=where.notes or (self.earlier.notes if self.earlier else ()),
        )

    def phase(self, phase: Phase | Literal["again"], message: str = "") -> None:
        """Tell which phase the job enters."""
        block = self.job.block
        labels = (block.tunnel.label, block.link.label, block.device.label)
        self.tell(BlockPhase(block.block_id, *labels, phase, message, self.progress.up))


class _Now:
    """The attempt under way: its phase, its times, its failure; what the session reports."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self.progress = runner.trial_progress
        self.cancelled = runner.interrupts.requested
        self.begin(1, 1)

    def begin(self, bring_up: int, number: int) -> None:
        """Begin the ``number``-th of the job's attempts, in all sessions of the run."""
        self.bring_up, self.number = bring_up, number
        self._phase: Phase = "lab"
        self.seconds: dict[str, float] = defaultdict(float)
        self.trials: list[str] = []
        """As ``Attempt.trials`` names them."""
        self._failure: tuple[Phase, str, bool] | None = None
        """Phase, reason, and whether it may be transient, of the first failure."""

    @contextmanager
    def during(self, step: Step) -> Iterator[None]:
        """Enter a step of the session, which a signal breaks off."""
        self.enter(step)
        with self.timed(_TIMES[step]), self._runner.interrupts.abrupt():
            yield

    @contextmanager
    def waiting(self, why: str) -> Iterator[None]:
        """Say that nothing is measured, and why; the phase under way is not charged for it."""
        self._runner.phase("waiting", why)
        start = time.monotonic()
        try:
            yield
        finally:
            waited_s = time.monotonic() - start
            self.seconds["waiting"] += waited_s
            self.seconds[_TIMES.get(self._phase, self._phase)] -= waited_s
        self._runner.phase(self._phase)

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        self._runner.phase(phase)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - start

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what fails in the attempt; what ends the whole run is passed on."""
        try:
            yield
        except ResultError:
            raise  # nothing can be kept any more: no other job could either
        except TunnelmarkError as error:
            self.fail(str(error), transient=error.transient or self._phase in {"trials", "down"})
        except Exception as error:  # noqa: BLE001 - a fault of a driver ends its job at most
            self.fail(self._unexpected(error), transient=True)

    def fail(self, reason: str, *, transient: bool) -> None:
        """Note the first failure; those behind it are its consequences."""
        self._failure = self._failure or (self._phase, reason, transient)

    def ended(self, seen: Seen) -> Attempt:
        """Return it as it is now."""
        phase, reason, transient = self._failure or (
            "done" if self._phase == "down" else self._phase,
            None,
            False,
        )
        attempt = Attempt(
            self.bring_up,
            phase,
            reason,
            transient,
            dict(self.seconds),
            seen.negotiated,
            seen.baseline_negotiated,
            seen.proofs,
            seen.baseline_proofs,
            seen.end_proofs,
        )
        # Another attempt at this bring-up, perhaps of a resume, may be in order.
        return attempt if attempt.disproved is None else replace(attempt, trials=(*self.trials,))

    def _unexpected(self, error: Exception) -> str:
        name = f"logs/{self._runner.job.job_id}/unexpected-{self.number}.txt"
        path = self._runner.directory / name
        with suppress(OSError):  # its own words matter less than that the run goes on
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        return f"unexpected {one_line(error)} (see {name})"


def _reached(attempt: Attempt) -> int:
    return bool(attempt.negotiated) + bool(attempt.proofs) + bool(attempt.baseline_proofs)
