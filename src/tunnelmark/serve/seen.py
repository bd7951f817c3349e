"""How far a run has come, by what is on disk: of one that another process does."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import polars as pl

from tunnelmark.model.block import Attempt, BlockRecord
from tunnelmark.model.errors import LabError, StudyError
from tunnelmark.sim.backend import BACKEND
from tunnelmark.sim.refusals import possible_points
from tunnelmark.store import Manifest, open_result
from tunnelmark.store.result import JobFiles
from tunnelmark.study import parse_study
from tunnelmark.study.points import blocks


@dataclass(frozen=True)
class Seen:
    """How far it is."""

    valid: int
    invalid: int
    least: int | None
    """Trials that it needs at least; None: it has ended, or its study cannot be read here."""
    last: str
    """The last trial, in words."""
    written_at: float
    """When it was written, in seconds since 1970."""
    left_s: float | None
    """Until the least are done, at the pace of the last sitting; None: it has none yet."""
    outcome: str | None

    @property
    def written_s(self) -> float:
        """Seconds since the last trial was written."""
        return max(0.0, time.time() - self.written_at)


class Watch:
    """One result, of which each job is read again only when its own files have changed.

    Whoever asks does so after every trial, on the computer that measures: to read all 30 jobs of a
    study took it most of a second of CPU time.
    """

    def __init__(self, directory: Path) -> None:
        """Read nothing yet."""
        self.directory = directory
        self._jobs: dict[str, tuple[_Stamp, _Job]] = {}

    def look(self) -> Seen:
        """Return how far it is now; ``ResultError`` names what is damaged."""
        result, known = open_result(self.directory), self._jobs
        self._jobs = {}
        for name, files in result.jobs().items():
            stamp = _stamp(files, result.blocks.get(name))
            kept = known.get(name)
            if kept is None or kept[0] != stamp:
                kept = stamp, _job(result.trials_of(files))
            self._jobs[name] = kept
        return _seen(result.manifest, [job for _, job in self._jobs.values()])


_Stamp = tuple[list[tuple[int, int]], list[Attempt]]
"""Of a job: time and size of its files, and what of it failed the proof after its trials."""


@dataclass(frozen=True)
class _Job:
    """What of a run's progress a job has."""

    trials: int
    valid: int
    sittings: Mapping[str, tuple[float, int]]
    """By the run id: start of the first trial, in seconds since 1970, and the number of valid
    ones."""
    last: Mapping[str, Any] | None


def _stamp(files: JobFiles, block: BlockRecord | None) -> _Stamp:
    found = []
    for path in (files.sealed, files.journal):
        # A journal may just have been sealed: the next look sees that.
        with suppress(FileNotFoundError):
            if path is not None:
                found.append(path.stat())
    attempts = () if block is None else block.attempts
    disproved = [attempt for attempt in attempts if attempt.disproved is not None]
    return [(one.st_mtime_ns, one.st_size) for one in found], disproved


def _job(trials: pl.DataFrame) -> _Job:
    total = trials.filter(pl.col("path") == "total").sort("started_at", maintain_order=True)
    by_run = total.group_by("run_id").agg(pl.col("started_at").min(), pl.col("valid").sum())
    return _Job(
        total.height,
        int(total["valid"].sum()),
        {run_id: (begun.timestamp(), valid) for run_id, begun, valid in by_run.iter_rows()},
        total.select(_SHOWN).row(total.height - 1, named=True) if total.height else None,
    )


_SHOWN: Final = (
    *("run_id", "started_at", "duration_s", "tunnel", "workload", "repeat", "valid", "reasons"),
)
"""Columns of the last trial."""


def _seen(manifest: Manifest, jobs: Sequence[_Job]) -> Seen:
    valid = sum(job.valid for job in jobs)
    last, left, written = "none yet", None, time.time()
    least = None if manifest.outcome else _least(manifest)
    ends = [job.last for job in jobs if job.last is not None]
    if ends:
        end = max(ends, key=lambda trial: trial["started_at"])
        words = "valid" if end["valid"] else f"invalid: {'; '.join(end['reasons'])}"
        last = f"{end['tunnel']}, {end['workload']}, repeat {end['repeat']}: {words}"
        written = end["started_at"].timestamp() + end["duration_s"]
        # Between two sittings nothing is measured: that time is not its pace.
        sitting = [job.sittings[end["run_id"]] for job in jobs if end["run_id"] in job.sittings]
        begun, done = min(at for at, _ in sitting), sum(count for _, count in sitting)
        if least is not None and done:
            left = max(0.0, (written - begun) / done * (least - valid))
    invalid = sum(job.trials for job in jobs) - valid
    return Seen(valid, invalid, least, last, written, left, manifest.outcome)


def _least(manifest: Manifest) -> int | None:
    return _least_of(
        (manifest.study_text, manifest.study_source, manifest.scale),
        frozenset(manifest.jobs),
        frozenset(manifest.omitted),
        frozenset(manifest.skipped),
        simulated=manifest.environment.get("backend") == BACKEND,
    )


@lru_cache(maxsize=8)  # a page asks after every trial, and a study may have thousands of points
def _least_of(
    text: tuple[str, str, str],
    only: frozenset[str],
    omitted: frozenset[str],
    skipped: frozenset[str],
    *,
    simulated: bool,
) -> int | None:
    try:
        study = parse_study(*text)
    except (StudyError, LabError):
        return None
    own = [
        block
        for block in blocks(study)
        if block.block_id not in omitted and (not only or block.block_id in only)
    ]
    if simulated:
        # What is skipped may run over another link: the jobs that are omitted say it all.
        points = possible_points(own)
    else:
        points = sum(len(b.points) for b in own if b.tunnel.label not in skipped)
    return study.precision.min_repeats * points
