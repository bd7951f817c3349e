"""A run by a Dask cluster: its scheduler hands the jobs out, this process puts the parts together.

Dask runs the job of a worker that died again on another one. A job counts when its part has come
back here, so none is lost or counted twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import polars as pl

from tunnelmark.execute.begin import check_where, create_result
from tunnelmark.execute.here import Simulation
from tunnelmark.execute.part import INTERRUPTED, Task, versions
from tunnelmark.execute.parts import keep, take_in
from tunnelmark.execute.scheduler import Answer, Cluster, Scheduler, SchedulerLostError, connected
from tunnelmark.execute.study_of import placed, study_of
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.clean import clean, find_leftovers
from tunnelmark.lab.placement import Wanted
from tunnelmark.model.block import time_by_place
from tunnelmark.model.costs import to_toml
from tunnelmark.model.errors import ResultError, StudyError
from tunnelmark.model.job import Job, to_json
from tunnelmark.model.session import Able
from tunnelmark.model.suites import Suite
from tunnelmark.run.events import JobDone, Listener, RunEnded, RunStarted, unfailing
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.replay import replay
from tunnelmark.run.tally import Tally
from tunnelmark.run.time_left import expected_s
from tunnelmark.sim.backend import SimBackend
from tunnelmark.store import Writer, open_result
from tunnelmark.store.manifest import environment_key
from tunnelmark.study import Study
from tunnelmark.study.plan import jobs as plan_jobs

_LEAST_HANDED_OUT: Final = 64
"""Jobs that the scheduler has at a time: enough for a cluster that grows with what waits."""


def execute_on(
    cluster: Cluster,
    study: Study | None,
    *,
    results_dir: Path,
    listener: Listener,
    keep_samples: bool,
    engine: str,
    seed: int | None = None,
    resume: Path | None = None,
    wanted: Wanted = "auto",
    suite: Suite | None = None,
    kernel: str | None = None,
    simulation: Simulation | None = None,
    say: Callable[[str], None] = lambda _step: None,
) -> RunEnded:
    """Run a study by a cluster, or resume one, as ``execute`` does here.

    Raises ``LabError`` where no scheduler answers, a worker cannot be used, or the scheduler is
    lost; jobs that have ended are then kept, and a resume runs the others.
    """
    simulated = simulation is not None
    if cluster.workers is not None and not simulated:
        raise StudyError(
            f"--cluster {cluster.address} is for --backend sim: two labs on one computer would "
            "disturb each other"
        )
    clean(find_leftovers())
    if resume is not None:
        take_in(resume)
        check_where(resume, on_hosts=False, simulated=simulated)
        study, only = study_of(resume)
        if only:
            raise StudyError(f"{resume} is limited to some jobs: resume it without --cluster")
    if study is None:
        raise ValueError("needs a study or a directory to resume")
    if seed is not None and resume is None:
        study = replace(study, seed=seed)
    if resume is None:
        study = replace(study, place=placed(study.place, suite, kernel))
    able, costs = _able(study, engine, simulation)
    try:
        with Interrupts() as interrupts, ExitStack() as closing:
            ledger = closing.enter_context(Ledger())
            with interrupts.abrupt():
                scheduler = closing.enter_context(connected(cluster, ledger.work_dir))
                slots = scheduler.check(versions(), labs=not simulated)
            if not slots:
                fit = "" if simulated else f", such as: {scheduler.lab_worker}"
                say(f"{cluster.address} has no workers yet; waiting for one{fit}")
            writer = (
                create_result(results_dir, study, (), ledger.run_id, able)
                if resume is None
                else Writer(resume)
            )
            task = Task(
                job="",
                head=writer.manifest.model_copy(update={"run_id": ledger.run_id}),
                started_at=_now(),
                simulated=simulated,
                environment=able.environment,
                costs=costs,
                wanted=wanted,
                keep_samples=keep_samples,
                all_samples=simulation is not None and simulation.all_samples,
                tunnelmark=versions()[0],
                engine=versions()[1],
            )
            run = _Run(able, writer, task, scheduler, listener=listener, interrupts=interrupts)
            try:
                outcome = run.hand_out(slots)
            finally:
                run.put_together()
            return run.end(outcome)
    except Interrupted:
        # Asked twice, or before there was anything to record.
        raise KeyboardInterrupt from None


def _able(study: Study, engine: str, simulation: Simulation | None) -> tuple[Able, tuple[str, ...]]:
    """Return what can be run, and the cost models; of labs only their workers know."""
    jobs = plan_jobs(study)
    if simulation is None:
        return Able(jobs, {}, {}, ()), ()
    models = simulation.models()
    # It opens no sessions here, so it needs no folder of its own.
    backend = SimBackend(engine, models, Path(), keep_samples=False)
    return backend.check(jobs), tuple(to_toml(model) for model in models)


class _Run:
    """Jobs on their way to the workers and back."""

    def __init__(
        self,
        able: Able,
        writer: Writer,
        task: Task,
        scheduler: Scheduler,
        *,
        listener: Listener,
        interrupts: Interrupts,
    ) -> None:
        """``task`` is that of every job, but for the job."""
        self._writer, self._task, self._scheduler = writer, task, scheduler
        self._listener, self._interrupts = unfailing(listener), interrupts
        self._skipped = able.skipped
        self._directory = writer.directory
        self._start = time.monotonic()
        self._errors: list[str] = []
        if able.environment:
            known = {environment_key(able.environment): able.environment}
            writer.update(environments={**writer.manifest.environments, **known})
        self._open = self._still_open(able.jobs, able.environment)
        self._tally = _Tally(self._open)

    def hand_out(self, slots: int) -> Literal["complete", "interrupted"]:
        """Hand out all open jobs and keep what comes back; ``SchedulerLostError`` if it is lost."""
        self._tell_start(slots)
        waiting = iter(self._open)
        most = max(_LEAST_HANDED_OUT, 4 * slots)
        jobs = {job.job_id: job for job in self._open}
        try:
            while True:
                while len(self._scheduler) < most and (job := next(waiting, None)) is not None:
                    self._submit(job)
                if not len(self._scheduler):
                    return "complete"
                with self._interrupts.abrupt():
                    answer = self._scheduler.next()
                self._take(answer, jobs[answer.job_id])
        except Interrupted:
            return "interrupted"
        except SchedulerLostError as error:
            raise SchedulerLostError(
                f"{error}; {self._tally.jobs} of {len(self._open)} jobs are kept, resume the rest "
                f"with: tunnelmark run --resume {self._directory} --cluster "
                f"{self._scheduler.address}" + (" --backend sim" if self._task.simulated else "")
            ) from error
        finally:
            self._scheduler.forget()

    def put_together(self) -> None:
        """Merge what has come back into the result."""
        self._writer.close()
        take_in(self._directory)

    def end(self, outcome: Literal["complete", "interrupted"]) -> RunEnded:
        """Note how the run ended, and tell."""
        found = open_result(self._directory)
        manifest = found.manifest
        ended = RunEnded(
            str(self._directory),
            "failed" if self._errors and outcome == "complete" else outcome,
            "; ".join(self._errors),
            self._tally.valid,
            self._tally.invalid,
            time.monotonic() - self._start,
            0.0,
            time_by_place(found.blocks.values()),
        )
        writer = Writer(self._directory)
        try:
            # Of labs it is known when the first of them has been.
            first = next(iter(manifest.environments.values()), {})
            writer.update(
                ended_at=_now(),
                outcome=ended.outcome,
                environment=manifest.environment or first,
            )
        finally:
            writer.close()
        self._listener(ended)
        return ended

    def _still_open(self, jobs: Sequence[Job], environment: Mapping[str, str]) -> tuple[Job, ...]:
        """Return the jobs that have trials to do; of one that was begun all are done again.

        A point that was given up has some, too: any worker may have what the last one lacked.
        """
        tally = Tally(jobs)
        result = open_result(self._directory)
        key = environment_key(environment) if environment else ""
        replay(result, jobs, tally, key, forgive=True)
        begun = set(result.jobs())
        return tuple(
            job
            for job in jobs
            if job.job_id not in begun or tally.progress(job.job_id).next_trials()
        )

    def _submit(self, job: Job) -> None:
        task = self._task.model_copy(update={"job": to_json(job).decode()})
        self._scheduler.submit(
            job.job_id,
            task.model_dump_json(),
            name=f"tunnelmark-{task.head.run_id}",
            lab=not task.simulated,
        )

    def _take(self, answer: Answer, job: Job) -> None:
        """Keep the part of a job that has ended."""
        error, valid, invalid = answer.error, 0, 0
        if answer.sent is not None:
            try:
                part = keep(answer.sent.part, self._directory, job.job_id)
            except ResultError as problem:
                error = str(problem)
            else:
                own = (pl.col("path") == "total") & (pl.col("block_id") == job.job_id)
                total = part.trials().filter(own)["valid"]
                valid, invalid = int(total.sum()), int((~total).sum())
                record = part.blocks.get(job.job_id)
                error = (record.error or "") if record is not None else "it has no record"
                if part.manifest.outcome == INTERRUPTED:
                    # What it has is kept; what is missing is for a resume.
                    error = f"it was interrupted on {answer.sent.worker}"
        self._tally.add(job, valid, invalid)
        if error:
            self._errors.append(f"{job.block.tunnel.label} over {job.block.link.label}: {error}")
        self._listener(
            JobDone(
                job_id=job.job_id,
                tunnel=job.block.tunnel.label,
                link=job.block.link.label,
                device=job.block.device.label,
                worker=answer.sent.worker if answer.sent else "",
                valid_trials=valid,
                invalid_trials=invalid,
                error=error,
                jobs_done=self._tally.jobs,
                jobs_expected=len(self._open),
                time_left_s=self._tally.left_s(time.monotonic() - self._start),
            )
        )

    def _tell_start(self, slots: int) -> None:
        points = sum(len(job.block.points) for job in self._open)
        manifest = self._writer.manifest
        least, most = (
            (one.min_repeats, one.max_repeats)
            if (one := self._open[0].precision if self._open else None)
            else (0, 0)
        )
        self._listener(
            RunStarted(
                manifest.study,
                self._task.head.run_id,
                str(self._directory),
                len(self._open),
                points * least,
                points * most,
                expected_s(self._open)[0] / max(slots, 1) if self._open else 0.0,
                tuple(self._skipped.items()),
            )
        )


class _Tally:
    """What has come back."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """Nothing of ``jobs`` has come back yet."""
        self.jobs = self.valid = self.invalid = 0
        self._expected_s, self._whole_s = 0.0, expected_s(jobs)[0] if jobs else 0.0

    def add(self, job: Job, valid: int, invalid: int) -> None:
        """Enter a job that has ended."""
        self.jobs += 1
        self.valid += valid
        self.invalid += invalid
        self._expected_s += expected_s([job])[0]

    def left_s(self, spent_s: float) -> float:
        """Return how long the rest takes, at the pace of what has come back after ``spent_s``."""
        left = self._whole_s - self._expected_s
        return spent_s * left / self._expected_s if self._expected_s else 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
