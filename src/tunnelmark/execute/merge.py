"""Results of jobs of one study put together: each job once, however often that is done."""

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import polars as pl

from tunnelmark.execute.study_of import study_of
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.model.job import Job
from tunnelmark.run.replay import progress_of
from tunnelmark.store import Manifest, Result, Writer, open_result
from tunnelmark.store.layout import MANIFEST, inside
from tunnelmark.store.manifest import Sitting, read_versioned
from tunnelmark.store.result import JobFiles, empty_trials, read_trials, without_disproved
from tunnelmark.study.plan import jobs as plan_jobs

_SAME: Final = ("study", "scale", "study_sha256", "seed", "suite", "kernel")
"""Fields of the manifest that say whether results are of one study."""
_ATTEMPT: Final = ("run_id", "trial_id", "attempt", "path")


@dataclass(frozen=True)
class Merged:
    """What a merge came to."""

    added: int
    """Rows of trials that were not there before."""
    known: int
    left_out: int
    """Rows of a job that was run more than once: the run with the most valid trials counts."""
    jobs: int
    """Jobs of the study that have trials now."""
    missing: tuple[str, ...]
    """Jobs that have trials still to do and no record of why they failed."""


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Put the results of some jobs into one directory, which is created if needed.

    Raises ``ResultError``, before anything is written, for one that is of another study, scale,
    seed or format. Merging the same again changes nothing; the order does not matter.
    """
    found = [_opened(path) for path in sources if path.resolve() != into.resolve()]
    if (into / MANIFEST).exists():
        found.insert(0, _opened(into))
    if not found:
        raise ResultError(f"{into}: there is nothing to merge but itself")
    for other in found[1:]:
        _belongs(found[0], other)
    if not (into / MANIFEST).exists():
        Writer.create(into, found[0].manifest.model_copy(update={"jobs": ()})).close()
    with closing(Writer(into)) as writer:
        return _merged(found, open_result(into), writer)


def _merged(sources: Sequence[Result], there: Result, writer: Writer) -> Merged:
    results = [there, *(one for one in sources if one.directory != there.directory)]
    files: dict[str, list[tuple[Result, JobFiles | None]]] = {}
    for result in results:
        trials: dict[str, JobFiles | None] = dict(result.jobs())
        # A job that failed before its first trial has nothing but the reason.
        for name in sorted({*trials, *_failed(result)}):
            files.setdefault(name, []).append((result, trials.get(name)))
    study, _ = study_of(there.directory)
    planned = {job.job_id: job for job in plan_jobs(study)}
    done: set[str] = set()
    added = known = left_out = with_trials = 0
    for name in sorted(files):
        # One job at a time: all of them may be more than the memory holds.
        runs = [run for result, paths in files[name] for run in _run(result, name, paths)]
        if not runs:
            continue
        best = max(runs, key=_Run.worth)
        with_trials += bool(best.keys)
        now = runs[0] if runs[0].result is there else None
        old = now.keys if now is not None else frozenset()
        added += len(best.keys - old)
        known += len(best.keys & old)
        left_out += len(frozenset().union(*(one.keys for one in runs)) - best.keys)
        if best is not now:
            _copy(best, name, writer)
        if (job := planned.get(name)) is not None and best.has_all(job):
            done.add(name)
    into = open_result(writer.directory)
    # A record alone says little: a run writes it before the first trial.
    done |= _failed(into)
    manifests = [there.manifest, *(one.manifest for one in sources)]
    omitted = {name for manifest in manifests for name in manifest.omitted}
    skipped = _skipped(
        manifests,
        ran={planned[name].block.tunnel.label for name in into.jobs() if name in planned},
        # Over one link, though it may run over another.
        refused={planned[name].block.tunnel.label for name in omitted if name in planned},
    )
    missing = tuple(
        name
        for name, job in planned.items()
        if name not in done and name not in omitted and job.block.tunnel.label not in skipped
    )
    writer.update(
        **_together(manifests),
        skipped=skipped,
        outcome="interrupted" if missing else "failed" if _failed(into) else "complete",
        wall_s=sum(record.wall_s for record in into.blocks.values()),
        measuring_s=sum(record.seconds.get("measuring", 0.0) for record in into.blocks.values()),
    )
    return Merged(added, known, left_out, with_trials, missing)


@dataclass(frozen=True)
class _Run:
    """One job in one result."""

    result: Result
    record: BlockRecord | None
    trials: pl.DataFrame
    """As they were written; none of a job that failed before its first."""

    @cached_property
    def keys(self) -> frozenset[tuple[object, ...]]:
        """Its rows, each by what it has alone."""
        return frozenset(self.trials.select(_ATTEMPT).iter_rows())

    def worth(self) -> tuple[int, int, str]:
        """Return by what the one that counts is chosen; the same whatever the order."""
        valid = int(self._counted()["valid"].sum())
        reason = (self.record.error if self.record is not None else None) or ""
        last = str(self.trials["run_id"][0]) if self.trials.height else reason
        return valid, self.trials.height, last

    def has_all(self, job: Job) -> bool:
        """Say whether nothing of the job is still to be measured, in whatever environment."""
        rows = self._counted()
        rows = rows.filter((pl.col("path") == "total") & (pl.col("block_id") == job.job_id))
        rows = rows.sort("started_at", maintain_order=True)
        return not progress_of(job, rows, environment="").next_trials()

    def _counted(self) -> pl.DataFrame:
        """Return the trials as a reader of the result sees them."""
        known = {} if self.record is None else {self.record.block_id: self.record}
        return without_disproved(self.trials, known)


def _run(result: Result, name: str, files: JobFiles | None) -> Iterator[_Run]:
    record = result.blocks.get(name)
    trials = read_trials(files) if files is not None else empty_trials()
    if trials.height or (record is not None and record.error):
        yield _Run(result, record, trials)


def _failed(result: Result) -> set[str]:
    """Return the jobs of a result that ended with an error."""
    return {name for name, record in result.blocks.items() if record.error}


def _copy(run: _Run, job_id: str, writer: Writer) -> None:
    """Copy a job; its trials last, so that a copy that was broken off is made again."""
    source, target = run.result.directory, writer.directory
    names = {name for samples in run.trials["samples"] for name in samples}
    names = {f"samples/{name}" for name in names}
    names |= {f"captures/{path.name}" for path in (source / "captures").glob(f"{job_id}-*.pcap")}
    logs = (source / "logs" / job_id).rglob("*")
    names |= {str(path.relative_to(source)) for path in logs if path.is_file()}
    for name in sorted(names):
        there, here = inside(source, name), inside(target, name)
        if there.is_file():
            with writing(here):
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(there, here)
    if run.record is not None:
        writer.write_block(run.record)
    if run.trials.height:
        writer.write_trials(job_id, run.trials)


def _together(manifests: Sequence[Manifest]) -> dict[str, object]:
    sittings = _sittings(manifest.sittings for manifest in manifests)
    environments = {k: v for manifest in manifests for k, v in manifest.environments.items()}
    ends = [manifest.ended_at for manifest in manifests if manifest.ended_at]
    return {
        "sittings": sittings,
        "environments": dict(sorted(environments.items())),
        "started_at": min(manifest.started_at for manifest in manifests),
        "ended_at": max(ends, default=None),
        "omitted": tuple(sorted({name for one in manifests for name in one.omitted})),
    }


def _skipped(
    manifests: Sequence[Manifest], *, ran: Collection[str], refused: Collection[str]
) -> dict[str, str]:
    """Return the tunnels that could not run, and why, without those that ran elsewhere."""
    found = {k: v for manifest in manifests for k, v in manifest.skipped.items()}
    return {k: v for k, v in sorted(found.items()) if k not in ran or k in refused}


def _sittings(found: Iterable[tuple[Sitting, ...]]) -> tuple[Sitting, ...]:
    """Return each sitting once; that of a worker of a cluster has all jobs that it ran."""
    jobs: dict[Sitting, set[str]] = {}
    for one in chain.from_iterable(found):
        jobs.setdefault(one.model_copy(update={"jobs": ()}), set()).update(one.jobs)
    together = (one.model_copy(update={"jobs": tuple(sorted(jobs[one]))}) for one in jobs)
    return tuple(sorted(together, key=lambda one: (one.started_at, one.run_id, one.worker)))


def _opened(path: Path) -> Result:
    _, converting = read_versioned(path)
    if converting:
        raise ResultError(f"{path}: has an older format, which can be read but not merged")
    return open_result(path)


def _belongs(first: Result, other: Result) -> None:
    for field in _SAME:
        one, two = getattr(first.manifest, field), getattr(other.manifest, field)
        if one != two:
            raise ResultError(
                f"{other.directory}: has the {_WORDS[field]} {two}, {first.directory} has {one}: "
                "only results of one study can be merged"
            )


_WORDS: Final = {
    "study": "study",
    "scale": "scale",
    "study_sha256": "study text with the hash",
    "seed": "seed",
    "suite": "suite of virtual machines",
    "kernel": "kernel of virtual machines",
}
