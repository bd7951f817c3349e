"""Names and limits of a result directory, and safe access to files inside it."""

import os
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import ResultError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
FOLDERS: Final = ("trials", "blocks", "samples", "captures", "logs", "report")
_JSON_LIMIT_BYTES: Final = 64 << 20


def inside(directory: Path, name: str) -> Path:
    """Return a path inside a result directory; ``ResultError`` if it would leave it."""
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ResultError(f"{path}: leads out of the result directory")
    return path


def read_bounded(path: Path, limit_bytes: int = _JSON_LIMIT_BYTES) -> bytes:
    """Read a file of at most ``limit_bytes``; ``ResultError`` names it."""
    try:
        size = path.stat().st_size
        if size > limit_bytes:
            raise ResultError(f"{path}: has {size} byte, at most {limit_bytes} are allowed")
        return path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    part = path.with_name(f".{path.name}.part")
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
