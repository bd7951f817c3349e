"""A result directory: written by one run at a time, read by anyone."""

import fcntl
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from tunnelmark.model.block import Attempt, BlockRecord, Stratum
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.model.trial import TrialResult
from tunnelmark.model.validity import Check
from tunnelmark.store.blocks import read_block, write_block
from tunnelmark.store.formats import CONVERTERS, FORMAT, Converter, Converters
from tunnelmark.store.journal import ENDING, Journal, read_journal
from tunnelmark.store.layout import (
    FOLDERS,
    files,
    inside,
    read_bounded,
    remove_parts,
    write_atomically,
)
from tunnelmark.store.limits import (
    LARGEST_FILE_BYTES,
    MOST_VALUES_OF_ALL,
    LimitError,
    Limits,
)
from tunnelmark.store.manifest import (
    Manifest,
    Sitting,
    environment_key,
    read_versioned,
    write_manifest,
)
from tunnelmark.store.parquet import read_parquet
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, Origin, check_frame, to_rows

_OF_ALL: Final = Limits(rows=MOST_VALUES_OF_ALL, values=MOST_VALUES_OF_ALL)


class Result:
    """A result directory that is read."""

    def __init__(
        self, directory: Path, *, converters: Converters = CONVERTERS, newest: int = FORMAT
    ) -> None:
        """Open it; ``ResultError`` names what is damaged, foreign or newer."""
        self.directory = directory
        self.manifest: Manifest
        self.manifest, self._converting = read_versioned(
            directory, converters=converters, newest=newest
        )
        self.blocks: Mapping[str, BlockRecord] = {
            path.stem: read_block(path, self._converting)
            for path in files(directory, "blocks", ".json")
        }

    def trials(self) -> pl.DataFrame:
        """Return all attempts of all blocks, in order of time, as they were at the first call.

        Columns are those of ``rows.SCHEMA``, ``param_<name>`` and the metrics; raises
        ``ResultError`` for a damaged file or an attempt that occurs twice.
        """
        return self._trials

    def trials_of(self, job: "JobFiles") -> pl.DataFrame:
        """Return those of one of ``jobs``, as they are now; what is wrong elsewhere is not seen."""
        return self._completed(read_trials(job, self._converting))

    @cached_property
    def _trials(self) -> pl.DataFrame:
        frames = list(self._frames())
        if not frames:
            return empty_trials()
        try:
            trials = pl.concat(frames, how="diagonal_relaxed").sort(
                "started_at", "path", maintain_order=True
            )
        except pl.exceptions.PolarsError as error:
            raise ResultError(
                f"{self.directory}/trials: the files do not match: {error}"
            ) from error
        key = ["trial_id", "attempt", "path"]
        if (twice := trials.filter(trials.select(key).is_duplicated())).height:
            name = twice["trial_id"][0]
            raise ResultError(f"{self.directory}/trials: {name} has the same attempt twice")
        return self._completed(trials)

    def _completed(self, trials: pl.DataFrame) -> pl.DataFrame:
        """Add what is known of their blocks."""
        strata = {name: block.stratum.value for name, block in self.blocks.items()}
        of_block = pl.col("block_id").replace_strict(
            strata, default=Stratum.NAMESPACES.value, return_dtype=pl.String
        )
        trials = trials.with_columns(pl.col("stratum").fill_null(of_block))
        return without_disproved(trials, self.blocks)

    def _frames(self) -> Iterator[pl.DataFrame]:
        """Yield the trials of each job, as long as all together are not too many."""
        rows, columns = 0, set[str]()
        for paths in self.jobs().values():
            frame = read_trials(paths, self._converting)
            rows += frame.height
            columns.update(frame.columns)
            try:
                _OF_ALL.check(rows=rows, columns=len(columns))
            except LimitError as error:
                raise ResultError(f"{self.directory}/trials: {error}") from error
            yield frame

    def jobs(self) -> dict[str, "JobFiles"]:
        """Return the files of each job that has trials, by its name, in order of the names."""
        sealed = {path.stem: path for path in files(self.directory, "trials", ".parquet")}
        journals = {path.stem: path for path in files(self.directory, "trials", ENDING)}
        return {
            name: JobFiles(sealed.get(name), journals.get(name))
            for name in sorted({*sealed, *journals})
        }

    def samples(self, name: str) -> bytes:
        """Return a bulk record file by the name that a trial gives."""
        return read_bounded(inside(self.directory, f"samples/{name}"), LARGEST_FILE_BYTES)


class Writer:
    """A result directory that is being written; it is locked against a second run.

    Trials are appended to a journal for each job; a job that has ended is sealed.
    """

    def __init__(self, directory: Path) -> None:
        """Lock it; ``ResultError`` if another run has it."""
        self.directory = directory
        self._journal: Journal | None = None
        """Of the job that is being written."""
        with writing(directory):
            self._lock = inside(directory, ".lock").open("a", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise ResultError(f"{directory}: another run is writing to it") from error
        try:
            self.manifest = _of_this_format(directory)
        except ResultError:
            self._lock.close()
            raise
        remove_parts(directory)
        self._origin = self._of("", environment_key(self.manifest.environment))

    @classmethod
    def create(cls, directory: Path, manifest: Manifest) -> Self:
        """Make a new result directory."""
        with writing(directory):
            directory.mkdir(parents=True)
            for folder in FOLDERS:
                (directory / folder).mkdir()
            write_manifest(directory, manifest)
        return cls(directory)

    def begin(
        self,
        worker: str,
        environment: Mapping[str, str],
        run_id: str,
        *,
        started_at: str | None = None,
        jobs: tuple[str, ...] = (),
    ) -> None:
        """Note a sitting: trials that follow are measured by ``worker`` in ``environment``.

        ``started_at`` is now unless given; ``jobs`` are those of a worker of a cluster.
        """
        key = environment_key(environment)
        sitting = Sitting(
            run_id=run_id,
            worker=worker,
            environment=key,
            started_at=started_at or datetime.now(UTC).isoformat(timespec="seconds"),
            jobs=jobs,
        )
        self.update(
            environments={**self.manifest.environments, key: dict(environment)},
            sittings=(*self.manifest.sittings, sitting),
        )
        self._origin = replace(self._of(worker, key), run_id=run_id)

    @property
    def environment(self) -> str:
        """Key of the environment of trials that are appended."""
        return self._origin.environment

    def append(self, result: TrialResult, *, pair_id: str) -> None:
        """Add an attempt; on disk when this returns."""
        path = self._path(result.trial.block_id, ENDING)
        if self._journal is None or self._journal.path != path:
            self._close_journal()
            self._journal = Journal(path)
        self._journal.append(to_rows(result, origin=self._origin, pair_id=pair_id))

    def seal(self, job_id: str) -> None:
        """Turn the journal of a job that has ended into the columns that readers like."""
        self._close_journal()
        sealed, journal = self._path(job_id, ".parquet"), self._path(job_id, ENDING)
        if not journal.exists():
            return
        frame = read_trials(JobFiles(sealed if sealed.exists() else None, journal))
        self.write_trials(job_id, frame)

    def write_trials(self, job_id: str, frame: pl.DataFrame) -> None:
        """Write all trials of a job, in place of what is there of it, sealed or not."""
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        write_atomically(self._path(job_id, ".parquet"), buffer.getvalue())
        journal = self._path(job_id, ENDING)
        with writing(journal):
            journal.unlink(missing_ok=True)

    def _of(self, worker: str, environment: str) -> Origin:
        return Origin(self.manifest.study, self.manifest.run_id, worker, environment)

    def _path(self, job_id: str, ending: str) -> Path:
        return inside(self.directory, f"trials/{job_id}{ending}")

    def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def write_block(self, record: BlockRecord) -> None:
        """Write what is recorded of a block, in place of what is there."""
        write_block(self.directory, record)

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest."""
        values = {**self.manifest.model_dump(), **changes}
        self.manifest = Manifest.model_validate(values)
        write_manifest(self.directory, self.manifest)

    def close(self) -> None:
        """Give up the lock, also where what was written cannot be kept (``UnwritableError``)."""
        try:
            self._close_journal()
        finally:
            self._lock.close()


def open_result(path: Path | str) -> Result:
    """Open a result directory for reading."""
    return Result(Path(path))


def _of_this_format(directory: Path) -> Manifest:
    manifest, converting = read_versioned(directory)
    if converting:
        raise ResultError(f"{directory}: has an older format, which can be read but not resumed")
    return manifest


def empty_trials() -> pl.DataFrame:
    """Return the trials of a job that has none."""
    return pl.DataFrame(schema={**SCHEMA, **METRIC_SCHEMA})


def without_disproved(trials: pl.DataFrame, blocks: Mapping[str, BlockRecord]) -> pl.DataFrame:
    """Return the trials with those invalid whose tunnel failed the proof when they were done."""
    for block in blocks.values():
        for attempt in block.attempts:
            if attempt.disproved is None:
                continue
            message = f"the proof by wire failed after the trials: {attempt.disproved}"
            meant = (
                (pl.col("block_id") == block.block_id)
                & ~pl.col("is_baseline")
                & _of_attempt(attempt)
            )
            check = json.dumps(vars(Check("proof_at_the_end", ok=False, message=message)))
            trials = trials.with_columns(
                valid=pl.col("valid") & ~meant,
                reasons=pl.when(meant)
                .then(pl.concat_list("reasons", pl.lit([message])))
                .otherwise("reasons"),
                checks=pl.when(meant).then(_with(check)).otherwise("checks"),
            )
    return trials


def _of_attempt(attempt: Attempt) -> pl.Expr:
    """Say whether a trial is of an attempt of its block: where nobody noted, of its bring-up."""
    if attempt.trials is None:
        return pl.col("bring_up") == attempt.bring_up
    return pl.concat_str("trial_id", "attempt", separator="-").is_in(list(attempt.trials))


def _with(check: str) -> pl.Expr:
    """Return the column ``checks``, lists in JSON, with one more."""
    before = pl.col("checks").str.strip_suffix("]")
    return before + pl.when(before == "[").then(pl.lit("")).otherwise(pl.lit(", ")) + f"{check}]"


@dataclass(frozen=True)
class JobFiles:
    """Where the trials of one job are."""

    sealed: Path | None
    """Those of a job that has ended."""
    journal: Path | None
    """Those that were added since."""


def read_trials(paths: JobFiles, converting: tuple[Converter, ...] = ()) -> pl.DataFrame:
    """Return all attempts of one job as they were written.

    ``ResultError`` names the file and what is wrong.
    """
    sealed, journal = paths.sealed, paths.journal
    frames = [_read_sealed(sealed, converting)] if sealed is not None else []
    if journal is not None:
        late = read_journal(read_bounded(journal, LARGEST_FILE_BYTES), str(journal))
        check_frame(late, str(journal))
        if frames:
            # A kill while a job was sealed leaves what was sealed in its journal too.
            late = late.join(frames[0], on=("trial_id", "attempt"), how="anti")
        frames.append(late)
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise ResultError(f"{journal}: does not match {sealed}: {error}") from error


def _read_sealed(path: Path, converting: tuple[Converter, ...]) -> pl.DataFrame:
    data = read_bounded(path, LARGEST_FILE_BYTES)
    frame = read_parquet(data, str(path), Limits())
    for step in converting:
        frame = step.trials(frame)
    check_frame(frame, str(path))
    return frame
