"""What a run that ended early has on disk is entered, so that valid trials are not repeated."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tunnelmark.model.errors import ResultError
from tunnelmark.model.job import Job
from tunnelmark.model.validity import INTERRUPTED
from tunnelmark.run.progress import JobProgress
from tunnelmark.run.tally import Tally
from tunnelmark.store import Result
from tunnelmark.study.plan import repeat


def replay(
    result: Result,
    jobs: Sequence[Job],
    tally: Tally,
    environment: str,
    *,
    forgive: bool = False,
) -> None:
    """Enter the trials of a result that are of these jobs, to continue them in an environment.

    A job that was finished in another environment stays as it is. One that was not is measured
    whole in this one: what was measured there is kept, but figures of two environments are never
    pooled. Others are of a tunnel that cannot run here any more. Invalid trials do not count
    against a point that is continued here: what spoiled them, such as a full disk, may be repaired.
    With ``forgive`` none does wherever it was measured, for a resume that does not yet know where.
    Raises ``ResultError`` for a damaged one.
    """
    by_id = {job.job_id: job for job in jobs}
    trials = result.trials().filter(pl.col("path") == "total")
    for (name,), rows in trials.partition_by("block_id", as_dict=True, maintain_order=True).items():
        if (job := by_id.get(str(name))) is not None:
            progress = progress_of(job, rows, environment, forgive=forgive)
            tally.replayed(progress, rows["valid"].to_list())


def progress_of(
    job: Job, rows: pl.DataFrame, environment: str, *, forgive: bool = False
) -> JobProgress:
    """Return how far a job is by its trials, one row each, in order of time; see ``replay``."""
    known = {
        trial.trial_id: trial
        for number in range(1, job.precision.max_repeats + 1)
        for trial in repeat(job, job.block.points, number)
    }
    places = rows["environment"].unique(maintain_order=True).to_list()
    for place in sorted(places, key=lambda place: place == environment):
        progress = JobProgress(job)
        for row in rows.iter_rows(named=True):
            if (trial := known.get(row["trial_id"])) is None:
                continue
            if row["environment"] == place:
                forgiven = forgive or place == environment or _interrupted(row)
                progress.record(trial, valid=row["valid"], figures=row, forgiven=forgiven)
            else:
                # Only so that no two attempts have one number.
                progress.attempts[trial.trial_id] += 1
        if place == environment or not progress.next_trials():
            return progress
    progress = JobProgress(job)
    for trial_id in rows["trial_id"]:
        progress.attempts[trial_id] += 1
    return progress


def _interrupted(row: Mapping[str, Any]) -> bool:
    return any(check["name"] == INTERRUPTED and not check["ok"] for check in _checks(row))


def _checks(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        found: list[Mapping[str, Any]] = json.loads(row["checks"])
        return [{"name": str(check["name"]), "ok": bool(check["ok"])} for check in found]
    except (ValueError, TypeError, KeyError) as error:
        raise ResultError(f"trial {row['trial_id']}: checks are damaged: {error}") from error
