"""What every run does before its first job: which jobs, where it may go on, its new directory."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tunnelmark.lab.hosts_placement import ON_HOSTS
from tunnelmark.model.errors import StudyError
from tunnelmark.model.job import Job
from tunnelmark.model.session import Able
from tunnelmark.sim.backend import BACKEND
from tunnelmark.store import Manifest, Writer, open_result
from tunnelmark.store.layout import FORMAT
from tunnelmark.study import Study


def check_where(resume: Path, *, on_hosts: bool, simulated: bool) -> None:
    """Refuse to resume a run in another kind of place."""
    environments = open_result(resume).manifest.environments.values()
    if on_hosts != any(ON_HOSTS in environment for environment in environments):
        where = "this computer: leave out" if on_hosts else "real hosts: give"
        raise StudyError(f"{resume} was started on {where} --hosts")
    if simulated != any(one.get("backend") == BACKEND for one in environments):
        where = "in a lab: leave out" if simulated else "in simulation: give"
        raise StudyError(f"{resume} was started {where} --backend sim")


def limited(able: Able, only: Sequence[str], study: Study) -> Able:
    """Return what is to be run of it; ``StudyError`` if that cannot be."""
    if not only:
        return able
    if lost := [name for name in only if name in able.omitted]:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in able.skipped.items())
        raise StudyError(f"{study.source}: job {lost[0]} cannot be simulated; {reasons}")
    return replace(able, jobs=tuple(job for job in able.jobs if job.job_id in only))


def chosen_jobs(found: tuple[Job, ...], only: Sequence[str], study: Study) -> tuple[Job, ...]:
    """Return the jobs of a study, or those of some names; ``StudyError`` names one that is none."""
    if not only:
        return found
    known = {job.job_id: job for job in found}
    if missing := [name for name in only if name not in known]:
        raise StudyError(
            f"{study.source}: has no job {missing[0][:80]!r}; tunnelmark plan lists its "
            f"{len(found)} jobs"
        )
    return tuple(known[name] for name in only)


def create_result(
    results_dir: Path,
    study: Study,
    only: tuple[str, ...],
    run_id: str,
    able: Able,
) -> Writer:
    """Make the result directory of a new run, named after study, time and run."""
    now = datetime.now(UTC)
    directory = results_dir / f"{study.name}-{now:%Y%m%dT%H%M%SZ}-{run_id}"
    return Writer.create(
        directory,
        Manifest(
            format=FORMAT,
            study=study.name,
            title=study.title,
            description=study.description,
            study_text=study.text,
            study_source=study.source,
            scale=study.scale,
            study_sha256=hashlib.sha256(study.text.encode()).hexdigest(),
            suite=study.place.suite,
            kernel=study.place.kernel,
            run_id=run_id,
            seed=study.seed,
            confidence=study.precision.confidence,
            precision_metric=study.precision.metric,
            started_at=now.isoformat(timespec="seconds"),
            environment=able.environment,
            skipped=able.skipped,
            omitted=able.omitted,
            jobs=only,
        ),
    )
