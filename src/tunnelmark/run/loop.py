"""The jobs of a run, one after the other, into a result directory."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from tunnelmark.model.block import BlockRecord, time_by_place
from tunnelmark.model.errors import ResultError
from tunnelmark.model.job import Job
from tunnelmark.model.session import Sessions
from tunnelmark.model.trial import Progress, Trial, TrialResult
from tunnelmark.run.attempts import JobRunner
from tunnelmark.run.budget import Budget
from tunnelmark.run.events import (
    Listener,
    RunEnded,
    RunStarted,
    TrialDone,
    TrialProgress,
    unfailing,
)
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.replay import replay
from tunnelmark.run.tally import Tally
from tunnelmark.store import Writer, open_result
from tunnelmark.study.points import pair_id


@dataclass
class Loop:
    """Carries out jobs of one study by a backend, and reports to a listener."""

    jobs: Sequence[Job]
    backend: Sessions
    writer: Writer
    listener: Listener
    interrupts: Interrupts
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Tunnels that cannot run, and why."""
    budget_s: float | None = None
    """Ends the run in time, and is divided over the points."""
    changed: Callable[[], Mapping[str, str]] = dict
    """What the run has changed about the environment, asked after each job."""
    _earlier: dict[str, BlockRecord] = field(default_factory=dict)
    _budget: Budget | None = None
    _measuring_s: float = 0.0

    def __post_init__(self) -> None:
        """Let no listener end the run."""
        self.listener = unfailing(self.listener)

    def run(self, *, resumed: bool) -> RunEnded:
        """Run what is open of all jobs; a job that fails is recorded and the others go on.

        ``resumed``: the writer's directory has trials already. However it ends, the manifest says
        so.
        """
        self._start = time.monotonic()
        try:
            return self._run(resumed=resumed)
        except BaseException as error:
            with suppress(ResultError):  # a full disk may be the very reason
                self.writer.update(
                    ended_at=_now(),
                    outcome="interrupted" if isinstance(error, Interrupted) else "failed",
                )
            raise

    def _run(self, *, resumed: bool) -> RunEnded:
        self._tally = tally = Tally(self.jobs)
        if resumed:
            result = open_result(self.writer.directory)
            self._earlier = dict(result.blocks)
            replay(result, self.jobs, tally, self.writer.environment)
            del result  # it keeps all its trials
        if self.budget_s is not None:
            progress = tuple(tally.progress(job.job_id) for job in self.jobs)
            self._budget = Budget(self.budget_s, progress, tally.left, time.monotonic)
        self._tell_start()
        errors = []
        for job in self._order():
            if self.interrupts.requested():
                break
            record = self._job(job)
            if record is not None and record.error:
                errors.append(f"{record.tunnel} over {record.link}: {record.error}")
        return self._end(errors)

    def _order(self) -> Iterable[Job]:
        return self.jobs if self._budget is None else self._budget.jobs()

    def _job(self, job: Job) -> BlockRecord | None:
        """Run a job; None if it was done before an interruption."""
        progress = self._tally.progress(job.job_id)
        runner = record = None
        if progress.next_trials():
            earlier = self._earlier.get(job.job_id)
            runner = JobRunner(
                progress=progress,
                backend=self.backend,
                directory=self.writer.directory,
                interrupts=self.interrupts,
                tell=self.listener,
                trial_progress=self._trial_progress,
                finished=self._finished,
                recorded=self._recorded,
                earlier=earlier,
            )
            record = runner.run()
            self._measuring_s += _measuring_s(record) - _measuring_s(earlier)
            self.writer.write_block(record)
            self._note_changes()
            # A job that gets more of a time to spend is run again.
            self._earlier[job.job_id] = record
        # Also of one that was finished when a run was killed.
        self.writer.seal(job.job_id)
        if runner is not None and record is not None:
            runner.tell_end(record)
        if self._budget is None:
            self._tally.close(job.job_id)
        return record

    def _tell_start(self) -> None:
        points = sum(len(job.block.points) for job in self.jobs)
        precision = self.jobs[0].precision
        self.listener(
            RunStarted(
                self.writer.manifest.study,
                self.writer.manifest.run_id,
                str(self.writer.directory),
                len(self.jobs),
                points * precision.min_repeats,
                points * precision.max_repeats,
                self._left_s(),
                tuple(self.skipped.items()),
            )
        )

    def _end(self, errors: Sequence[str]) -> RunEnded:
        outcome: Literal["complete", "interrupted", "failed"] = "complete"
        if self.interrupts.requested():
            outcome = "interrupted"
        elif errors:
            outcome = "failed"
        ended = RunEnded(
            str(self.writer.directory),
            outcome,
            "; ".join(errors) or self._unfinished(),
            self._tally.valid,
            self._tally.invalid,
            time.monotonic() - self._start,
            self._measuring_s,
            time_by_place(self._earlier.values()),
        )
        manifest = self.writer.manifest
        self.writer.update(
            ended_at=_now(),
            outcome=outcome,
            wall_s=(manifest.wall_s or 0.0) + ended.wall_s,
            measuring_s=(manifest.measuring_s or 0.0) + ended.measuring_s,
        )
        self.listener(ended)
        return ended

    def _note_changes(self) -> None:
        environment = {**self.writer.manifest.environment, **self.changed()}
        if environment != self.writer.manifest.environment:
            self.writer.update(environment=environment)

    def _recorded(self, record: BlockRecord) -> None:
        self.writer.write_block(record)
        self._tally.bring_up(record)

    def _trial_progress(self, trial: Trial, progress: Progress) -> None:
        self.listener(TrialProgress(trial.trial_id, progress.done_ratio, progress.figures))

    def _finished(self, result: TrialResult, took_s: float) -> None:
        trial, workload = result.trial, result.trial.point.workload
        self.writer.append(result, pair_id=pair_id(trial.point))
        figures = dict(result.measurements[0].metrics) if result.measurements else {}
        self._tally.record(result, figures, took_s)
        if self._budget is not None:
            self._budget.trial_done()
        self.listener(
            TrialDone(
                trial_id=trial.trial_id,
                tunnel=trial.point.tunnel.label,
                workload=workload.label,
                point=workload.params,
                repeat=trial.repeat,
                attempt=result.attempt,
                valid=result.validity.valid,
                reasons=result.validity.reasons,
                figures=figures,
                metric=self.jobs[0].precision.metric_of(workload.kind),
                trials_done=self._tally.trials_done,
                trials_expected=self._tally.trials_expected,
                time_left_s=self._left_s(),
            )
        )

    def _left_s(self) -> float:
        left = self._tally.seconds_left
        return left if self._budget is None else max(0.0, min(left, self._budget.seconds))

    def _unfinished(self) -> str:
        given_up = self._tally.given_up
        words = [f"{given_up} points were given up after invalid trials"] if given_up else []
        if self._budget is not None and self._budget.words:
            words.append(self._budget.words)
        return "; ".join(words)


def _measuring_s(record: BlockRecord | None) -> float:
    return record.seconds.get("measuring", 0.0) if record else 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
