"""A result directory: written by one run at a time, read by anyone."""

import fcntl
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from tunnelmark.model.block import BlockRecord
from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.model.trial import TrialResult
from tunnelmark.model.validity import Check
from tunnelmark.store.blocks import read_block, write_block
from tunnelmark.store.formats import CONVERTERS, FORMAT, Converter, Converters
from tunnelmark.store.layout import (
    FOLDERS,
    files,
    inside,
    read_bounded,
    remove_parts,
    write_atomically,
)
from tunnelmark.store.manifest import Manifest, read_versioned, write_manifest
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, check_frame, to_frame

LARGEST_FILE_BYTES: Final = 4 << 30
"""Of trials or samples; a file that is longer is not ours."""


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
        """Return all attempts of all blocks, in order of time.

        Columns are those of ``rows.SCHEMA``, ``param_<name>`` and the metrics; raises
        ``ResultError`` for a damaged file or an attempt that occurs twice.
        """
        frames = [
            _read_frame(path, self._converting)
            for path in files(self.directory, "trials", ".parquet")
        ]
        if not frames:
            return pl.DataFrame(schema={**SCHEMA, **METRIC_SCHEMA})
        try:
            trials = pl.concat(frames, how="diagonal_relaxed").sort("started_at", "path")
        except pl.exceptions.PolarsError as error:
            raise ResultError(f"{self.directory}/trials: the files do not fit: {error}") from error
        key = ["trial_id", "attempt", "path"]
        if (twice := trials.filter(trials.select(key).is_duplicated())).height:
            name = twice["trial_id"][0]
            raise ResultError(f"{self.directory}/trials: {name} has the same attempt twice")
        return _without_disproved(trials, self.blocks)

    def samples(self, name: str) -> bytes:
        """Return a bulk record file by the name that a trial gives."""
        return read_bounded(inside(self.directory, f"samples/{name}"), LARGEST_FILE_BYTES)


class Writer:
    """A result directory that is being written; it is locked against a second run."""

    def __init__(self, directory: Path) -> None:
        """Lock it; ``ResultError`` if another run has it."""
        self.directory = directory
        self._block: tuple[str, pl.DataFrame] | None = None
        """The block that is being written, with its rows."""
        with writing(directory):
            self._lock = inside(directory, ".lock").open("a", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise ResultError(f"{directory}: another run is writing it") from error
        try:
            self.manifest = _of_this_format(directory)
        except ResultError:
            self._lock.close()
            raise
        remove_parts(directory)

    @classmethod
    def create(cls, directory: Path, manifest: Manifest) -> Self:
        """Make a new result directory."""
        with writing(directory):
            directory.mkdir(parents=True)
            for folder in FOLDERS:
                (directory / folder).mkdir()
            write_manifest(directory, manifest)
        return cls(directory)

    def append(self, result: TrialResult, *, pair_id: str) -> None:
        """Add an attempt; on disk when this returns."""
        rows = to_frame(
            result, study=self.manifest.study, run_id=self.manifest.run_id, pair_id=pair_id
        )
        block = result.trial.block_id
        path = self.directory / "trials" / f"{block}.parquet"
        # One block is kept: all of a long run would be gigabytes of evidence.
        if self._block is None or self._block[0] != block:
            self._block = (block, self._earlier(path))
        rows = pl.concat([self._block[1], rows], how="diagonal_relaxed")
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        write_atomically(path, buffer.getvalue())
        # Kept only now: after a full disk the next attempt is not written with this one.
        self._block = (block, rows)

    def _earlier(self, path: Path) -> pl.DataFrame:
        if not path.exists():
            return pl.DataFrame()
        return _read_frame(inside(self.directory, f"trials/{path.name}"), ())

    def write_block(self, record: BlockRecord) -> None:
        """Write what is recorded of a block, in place of what is there."""
        write_block(self.directory, record)

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest."""
        values = {**self.manifest.model_dump(), **changes}
        self.manifest = Manifest.model_validate(values)
        write_manifest(self.directory, self.manifest)

    def close(self) -> None:
        """Give up the lock."""
        self._lock.close()


def open_result(path: Path | str) -> Result:
    """Open a result directory for reading."""
    return Result(Path(path))


def _of_this_format(directory: Path) -> Manifest:
    manifest, converting = read_versioned(directory)
    if converting:
        raise ResultError(f"{directory}: has an older format, which can be read, not continued")
    return manifest


def _without_disproved(trials: pl.DataFrame, blocks: Mapping[str, BlockRecord]) -> pl.DataFrame:
    """Return the trials with those invalid whose tunnel failed the proof when they were done."""
    for block in blocks.values():
        for attempt in block.attempts:
            if attempt.disproved is None:
                continue
            message = f"the proof by wire failed when the trials were done: {attempt.disproved}"
            meant = (
                (pl.col("block_id") == block.block_id)
                & (pl.col("bring_up") == attempt.bring_up)
                & ~pl.col("is_baseline")
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


def _with(check: str) -> pl.Expr:
    """Return the column ``checks``, lists in JSON, with one more."""
    before = pl.col("checks").str.strip_suffix("]")
    return before + pl.when(before == "[").then(pl.lit("")).otherwise(pl.lit(", ")) + f"{check}]"


def _read_frame(path: Path, converting: tuple[Converter, ...]) -> pl.DataFrame:
    data = read_bounded(path, LARGEST_FILE_BYTES)
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    # Damage comes as any of several kinds of exception; a panic of the reader is no Exception.
    except (Exception, pl.exceptions.PanicException) as error:
        raise ResultError(f"{path}: is damaged: {error}") from error
    for step in converting:
        frame = step.trials(frame)
    check_frame(frame, str(path))
    return frame
