"""Trials of a job that is under way: one line of JSON an attempt, appended and never rewritten.

A kill at any byte leaves whole lines and at most a piece of one, the attempt that was being
written: readers leave the piece out, the next writer cuts it off.
"""

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.store.limits import MOST_ROWS, LimitError, Limits
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, frame_of, is_column

ENDING: Final = ".jsonl"


class Journal:
    """The journal of one job, open for writing."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it; a piece of a line at its end is cut off."""
        self.path = path
        self._file: io.FileIO | None = None
        with writing(path):
            # Without a buffer: it would keep what did not fit, and write it when it is closed.
            file = path.open("ab", buffering=0)
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
                left = memoryview(line)
                while left:
                    left = left[os.write(self._file.fileno(), left) :]
                os.fsync(self._file.fileno())
            except BaseException:
                self._cut(before)
                raise

    def close(self) -> None:
        """Close it; idempotent. Raises ``UnwritableError``; it is closed nevertheless."""
        file, self._file = self._file, None
        if file is not None:
            with writing(self.path):
                file.close()

    def _cut(self, size_bytes: int) -> None:
        """Remove a piece of a line: the next attempt must not stand behind it."""
        if self._file is None:
            return
        try:
            os.ftruncate(self._file.fileno(), size_bytes)
        except OSError:
            # A piece at the end is no damage; one in the middle would be.
            with suppress(OSError):
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
    columns = {*SCHEMA, *METRIC_SCHEMA}
    limits = Limits(rows=MOST_ROWS)
    for number, line in enumerate(data[: _whole(data)].split(b"\n")[:-1], start=1):
        try:
            added = [_row(row) for row in _list(json.loads(line.decode("utf-8", "surrogatepass")))]
            rows += added
            columns.update(*added)
            limits.check(rows=len(rows), columns=len(columns))
        except LimitError as error:
            raise ResultError(f"{place}:{number}: {error}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise ResultError(f"{place}:{number}: is damaged: {error}") from error
    if not rows:
        return pl.DataFrame(schema={**SCHEMA, **METRIC_SCHEMA})
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
    if strange := [name for name in found if not is_column(name)]:
        raise ValueError(f"column {min(strange)[:80]} is not a trial column")
    if missing := SCHEMA.keys() - found.keys():
        raise ValueError(f"a row has no {min(missing)}")
    return {**found, "started_at": datetime.fromisoformat(found["started_at"])}


def _as_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")
