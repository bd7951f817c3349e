"""Trials of a job that is under way: one line of JSON an attempt, appended and never rewritten.

A kill at any byte leaves whole lines and at most a piece of one, the attempt that was being
written: readers leave the piece out, the next writer cuts it off.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, frame_of

ENDING: Final = ".jsonl"


class Journal:
    """The journal of one job, open for writing."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it; a piece of a line at its end is cut off."""
        self.path = path
        self._file: IO[bytes] | None = None
        with writing(path):
            file = path.open("ab")
            try:
                whole = _whole(path.read_bytes())
                if file.tell() != whole:
                    file.truncate(whole)
                self._sync_folder()
            except BaseException:
                file.close()
                raise
        self._file = file

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add an attempt; on disk when this returns.

        Raises ``UnwritableError``; what was written of it until then is cut off again.
        """
        line = (json.dumps(rows, default=_as_json, ensure_ascii=False) + "\n").encode(
            "utf-8", "surrogatepass"
        )
        with writing(self.path):
            if self._file is None:
                raise OSError("is closed")
            before = self._file.seek(0, os.SEEK_END)
            try:
                self._file.write(line)
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError:
                # The next attempt must not stand behind a piece of this one.
                os.ftruncate(self._file.fileno(), before)
                raise

    def close(self) -> None:
        """Close it; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _sync_folder(self) -> None:
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_journal(data: bytes, place: str) -> pl.DataFrame:
    """Return the rows of all whole lines; ``ResultError`` names ``place`` and the line."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(data[: _whole(data)].split(b"\n")[:-1], start=1):
        try:
            rows += [_row(row) for row in _list(json.loads(line.decode("utf-8", "surrogatepass")))]
        except (ValueError, TypeError, RecursionError) as error:
            raise ResultError(f"{place}:{number}: is damaged: {error}") from error
    if not rows:
        return pl.DataFrame(schema={**SCHEMA, **METRIC_SCHEMA})
    if strange := {name for row in rows for name in row if not _known(name)}:
        raise ResultError(f"{place}: column {min(strange)[:80]} is not a trial column")
    try:
        return frame_of(rows)
    except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError) as error:
        raise ResultError(f"{place}: is damaged: {error}") from error


def _whole(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _list(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError("it has no list")
    return found


def _row(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("it has no rows")
    return {**found, "started_at": datetime.fromisoformat(found.get("started_at", ""))}


def _known(name: str) -> bool:
    return name in SCHEMA or name in METRIC_SCHEMA or name.startswith("param_")


def _as_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")
