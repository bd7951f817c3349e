"""What went wrong, in one line: for errors that nobody foresaw, and for files of a result."""

import errno
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import ResultError, TunnelmarkError

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_LONGEST: Final = 300
_FIXES: Final = {
    errno.ENOSPC: "free space there, then resume with tunnelmark run --resume DIR",
    errno.EDQUOT: "free space or raise the quota, then resume with tunnelmark run --resume DIR",
    errno.EIO: "the disk is failing: write the results to another disk (--results)",
    errno.EROFS: "write the results elsewhere (--results)",
    errno.EACCES: "change its permissions, or write the results elsewhere (--results)",
}


def one_line(error: BaseException) -> str:
    """Return one line: the message of an error of ours, else its kind, place and words.

    The place is the last one in our own code: ``ValueError in workloads/calls.py:212: …``.
    """
    if isinstance(error, TunnelmarkError):
        return str(error)
    words = " ".join(str(error).split())[:_LONGEST]
    return f"{type(error).__name__}{_place(error)}" + (f": {words}" if words else "")


class UnwritableError(ResultError):
    """A file of a result cannot be written: no further measurement could be kept."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's error on writing a file of a result into ``UnwritableError``.

    It names the file and, where there is one, the remedy: for a full disk, a quota, a failing disk.
    """
    try:
        yield
    except OSError as error:
        fix = f" ({found})" if (found := _FIXES.get(error.errno or 0)) else ""
        why = error.strerror or str(error)
        raise UnwritableError(f"{path}: cannot be written: {why}{fix}") from error


def write(path: Path, data: bytes | memoryview) -> None:
    """Write a file of a result; ``UnwritableError`` as in ``writing``."""
    with writing(path):
        path.write_bytes(data)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    if not frames:
        return ""
    last = (ours or frames)[-1]
    path = Path(last.filename)
    name = path.relative_to(_PACKAGE) if ours else path.name
    return f" in {name}:{last.lineno}"
