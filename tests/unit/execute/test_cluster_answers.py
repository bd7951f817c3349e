"""What a cluster's parts are worth that ended early, and what a resume by a cluster hands out."""

import os
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from made_results import block_record, manifest
from made_study import made_text
from tunnelmark.execute import cluster, parts, worker
from tunnelmark.execute.scheduler import Answer
from tunnelmark.model.job import Job
from tunnelmark.model.trial import Measurement, TrialResult
from tunnelmark.model.validity import INTERRUPTED, Check, Validity
from tunnelmark.run.events import JobDone
from tunnelmark.store import Writer
from tunnelmark.study import parse_study
from tunnelmark.study.plan import first_round
from tunnelmark.study.plan import jobs as plan_jobs
from tunnelmark.study.points import pair_id


def _job() -> Job:
    (job,) = plan_jobs(parse_study(made_text("min_repeats = 3\nmax_repeats = 3"), "made.toml"))
    return job


def _part(directory: Path, job: Job, outcome: str | None) -> Path:
    with closing(Writer.create(directory, manifest(jobs=(job.job_id,)))) as writer:
        writer.write_block(replace(block_record(), block_id=job.job_id))
        writer.update(outcome=outcome)
    return directory


@pytest.mark.parametrize(("outcome", "errors"), [("interrupted", 1), ("complete", 0)])
def test_a_part_that_was_interrupted_is_kept_but_no_whole_job(
    tmp_path: Path, outcome: str, errors: int
) -> None:
    """SIGTERM to its process alone: it records what it has and ends with status 0."""
    job, heard = _job(), list[JobDone]()
    sent = worker.Sent("one", parts.pack(_part(tmp_path / "part", job, outcome)))
    run: Any = cluster._Run.__new__(cluster._Run)
    run._directory, run._open, run._errors = tmp_path / "whole", [job], []
    run._tally, run._start, run._listener = cluster._Tally([job]), time.monotonic(), heard.append
    run._take(Answer(job.job_id, sent), job)
    assert len(run._errors) == errors
    assert heard[0].error == ("it was interrupted on one" if errors else "")
    assert (tmp_path / "whole" / ".parts" / job.job_id / "manifest.json").is_file()


def _result(folder: Path, job: Job, *, spoilt: str | None) -> Path:
    """Return a result in which every trial was done, one of them without a valid attempt."""
    directory = folder / "result"
    first, *others = first_round(job)
    attempts = job.precision.max_invalid + 1 if spoilt else 1
    with closing(Writer.create(directory, manifest())) as writer:
        writer.begin("one", {"kernel": os.uname().release}, "tm1")
        for number, trial in enumerate([*[first] * attempts, *others], 1):
            ok = spoilt is None or trial is not first
            check = Check(spoilt or "made", ok=ok, message="")
            made = TrialResult(
                trial,
                min(number, attempts) if trial is first else 1,
                datetime(2026, 11, 22, tzinfo=UTC),
                1.0,
                (Measurement("total", {"rtt_p50_ns": 1e6}),),
                Validity((check,)),
            )
            writer.append(made, pair_id=pair_id(trial.point))
        writer.seal(job.job_id)
    return directory


@pytest.mark.parametrize("environment", [{}, {"kernel": "of a simulation"}])
@pytest.mark.parametrize("spoilt", ["disk", INTERRUPTED])
def test_a_point_that_was_given_up_is_handed_out_again(
    tmp_path: Path, spoilt: str, environment: dict[str, str]
) -> None:
    job = _job()
    run: Any = SimpleNamespace(_directory=_result(tmp_path, job, spoilt=spoilt))
    assert cluster._Run._still_open(run, (job,), environment) == (job,)


def test_a_job_that_is_whole_is_not_handed_out_again(tmp_path: Path) -> None:
    job = _job()
    run: Any = SimpleNamespace(_directory=_result(tmp_path, job, spoilt=None))
    assert cluster._Run._still_open(run, (job,), {}) == ()
