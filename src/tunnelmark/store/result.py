"""A result directory: written by one run at a time, read by anyone."""

import dataclasses
import fcntl
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import polars as pl

from tunnelmark.model.block import BlockRecord, WireProof, WireSample
from tunnelmark.model.errors import ResultError
from tunnelmark.model.trial import TrialResult
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.store.layout import FOLDERS, inside, read_bounded, write_atomically
from tunnelmark.store.manifest import Manifest, read_manifest, write_manifest
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, to_frame

_PARQUET_LIMIT_BYTES = 4 << 30


class Result:
    """A result directory that is read."""

    def __init__(self, directory: Path) -> None:
        """Open it; ``ResultError`` names what is damaged, foreign or newer."""
        self.directory = directory
        self.manifest: Manifest = read_manifest(directory)
        self.blocks: Mapping[str, BlockRecord] = self._read_blocks()

    def trials(self) -> pl.DataFrame:
        """Return all attempts of all blocks, in order of time."""
        frames = [_read_frame(path) for path in sorted(self.directory.glob("trials/*.parquet"))]
        if not frames:
            return pl.DataFrame(schema={**SCHEMA, **METRIC_SCHEMA})
        return pl.concat(frames, how="diagonal_relaxed").sort("started_at", "path")

    def samples(self, name: str) -> bytes:
        """Return a bulk record file by the name that a trial gives."""
        return read_bounded(inside(self.directory, f"samples/{name}"), _PARQUET_LIMIT_BYTES)

    def _read_blocks(self) -> dict[str, BlockRecord]:
        found = {}
        for path in sorted(self.directory.glob("blocks/*.json")):
            try:
                record = _block(json.loads(read_bounded(path)))
            except (ValueError, KeyError, TypeError) as error:
                raise ResultError(f"{path}: is damaged: {error}") from error
            found[record.block_id] = record
        return found


class Writer:
    """A result directory that is being written; it is locked against a second run."""

    def __init__(self, directory: Path) -> None:
        """Lock it; ``ResultError`` if another run has it."""
        self.directory = directory
        self._lock = (directory / ".lock").open("a", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise ResultError(f"{directory}: another run is writing it") from error
        self.manifest = read_manifest(directory)

    @classmethod
    def create(cls, directory: Path, manifest: Manifest) -> Self:
        """Make a new result directory."""
        try:
            directory.mkdir(parents=True)
            for folder in FOLDERS:
                (directory / folder).mkdir()
            write_manifest(directory, manifest)
        except OSError as error:
            raise ResultError(f"{directory}: cannot be made: {error.strerror}") from error
        return cls(directory)

    def append(self, result: TrialResult, *, pair_id: str) -> None:
        """Add an attempt; on disk when this returns."""
        rows = to_frame(
            result, study=self.manifest.study, run_id=self.manifest.run_id, pair_id=pair_id
        )
        path = self.directory / "trials" / f"{result.trial.block_id}.parquet"
        if path.exists():
            rows = pl.concat([_read_frame(path), rows], how="diagonal_relaxed")
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        write_atomically(path, buffer.getvalue())

    def write_block(self, record: BlockRecord) -> None:
        """Write what is recorded of a block, in place of what is there."""
        text = json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False)
        write_atomically(self.directory / "blocks" / f"{record.block_id}.json", text.encode())

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest."""
        self.manifest = self.manifest.model_copy(update=changes)
        write_manifest(self.directory, self.manifest)

    def close(self) -> None:
        """Give up the lock."""
        self._lock.close()


def open_result(path: Path | str) -> Result:
    """Open a result directory for reading."""
    return Result(Path(path))


def _read_frame(path: Path) -> pl.DataFrame:
    data = read_bounded(path, _PARQUET_LIMIT_BYTES)
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except Exception as error:
        raise ResultError(f"{path}: is damaged: {error}") from error
    for name, kind in SCHEMA.items():
        if frame.schema.get(name) != kind:
            raise ResultError(f"{path}: column {name} is {frame.schema.get(name)}, must be {kind}")
    return frame


def _block(raw: dict[str, Any]) -> BlockRecord:
    return BlockRecord(
        **{
            **raw,
            "negotiated": tuple(Negotiated(**entry) for entry in raw["negotiated"]),
            "baseline_negotiated": tuple(
                Negotiated(**entry) for entry in raw["baseline_negotiated"]
            ),
            "proofs": tuple(map(_proof, raw["proofs"])),
            "baseline_proofs": tuple(map(_proof, raw["baseline_proofs"])),
        }
    )


def _proof(raw: dict[str, Any]) -> WireProof:
    samples = tuple(
        WireSample(int(entry["payload_bytes"]), tuple(map(int, entry["outer_packet_bytes"])))
        for entry in raw["samples"]
    )
    return WireProof(**{**raw, "samples": samples})
