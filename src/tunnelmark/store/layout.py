"""Names and limits of a result directory, and safe access to files inside it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from tunnelmark.model.errors import ResultError
from tunnelmark.model.faults import writing
from tunnelmark.store.formats import FORMAT

__all__ = [
    "FOLDERS",
    "FORMAT",
    "MANIFEST",
    "files",
    "first_fault",
    "inside",
    "read_bounded",
    "remove_parts",
    "write_atomically",
]

MANIFEST: Final = "manifest.json"
FOLDERS: Final = ("trials", "blocks", "samples", "captures", "logs", "report")
MOST_FILES: Final = 200_000
"""No study has more points than half of this, so no directory of ours has more blocks."""
_JSON_LIMIT_BYTES: Final = 64 << 20
_PART: Final = ".part"


def inside(directory: Path, name: str) -> Path:
    """Return a path inside a result directory; ``ResultError`` if it would leave it."""
    path = directory / name
    try:
        leaves = not path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        raise ResultError(f"{path}: cannot be followed: {error}") from error
    if leaves:
        raise ResultError(f"{path}: leads out of the result directory")
    return path


def files(directory: Path, folder: str, ending: str) -> Iterator[Path]:
    """Yield the files of a folder in order of their names; what is being written is none yet."""
    found = sorted(
        path.name
        for path in (directory / folder).glob(f"*{ending}")
        if not path.name.startswith(".")
    )
    if len(found) > MOST_FILES:
        raise ResultError(
            f"{directory / folder}: has {len(found)} files, at most {MOST_FILES} are allowed"
        )
    for name in found:
        yield inside(directory, f"{folder}/{name}")


def read_bounded(path: Path, limit_bytes: int = _JSON_LIMIT_BYTES) -> bytes:
    """Read a file of at most ``limit_bytes``; ``ResultError`` names it."""
    try:
        if not path.is_file():
            raise ResultError(f"{path}: is not a file")
        with path.open("rb") as file:
            # So much is set aside at once: no more than is there.
            data = file.read(min(limit_bytes, os.fstat(file.fileno()).st_size) + 1)
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from error
    if len(data) > limit_bytes:
        raise ResultError(
            f"{path}: has {path.stat().st_size} bytes, at most {limit_bytes} are allowed"
        )
    return data


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut.

    Raises ``UnwritableError`` naming it: a full disk, a directory that is gone.
    """
    part = path.with_name(f".{path.name}{_PART}")
    with writing(path):
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_parts(directory: Path) -> None:
    """Remove what a run that was killed had begun to write; only for who holds the lock."""
    for folder in ("", *FOLDERS):
        for part in (directory / folder).glob(f".*{_PART}"):
            part.unlink(missing_ok=True)


def first_fault(error: ValidationError) -> str:
    """Return the first of pydantic's complaints as ``blocks.0.ok is …, must be …``."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the whole"
    message = first["msg"].replace("Input should", "must").rstrip(".")
    return f"{place}: {message[:1].lower()}{message[1:]}"
