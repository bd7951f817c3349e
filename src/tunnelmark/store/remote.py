"""Results on an object store, by URL: copied here to be read, sent there as jobs end (fsspec)."""

import errno
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tunnelmark.model.errors import ResultError
from tunnelmark.store.journal import ENDING
from tunnelmark.store.layout import FOLDERS, MANIFEST, MOST_FILES, inside

MOST_BYTES: Final = 4 << 30
"""Of a result that is copied here."""
_READ: Final = ("trials", "blocks", "samples")
"""Folders that a report reads."""
_MOST_COPIED: Final = 10 * MOST_FILES
_PIECE_BYTES: Final = 1 << 20
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
"""Only the copy can lack it: nothing is written at the URL."""


def is_url(text: str) -> bool:
    """Say whether it is a place on an object store, such as ``s3://BUCKET/FOLDER``."""
    return "://" in text


def fetch(place: str, folder: Path) -> None:
    """Copy what a report reads of the result at a URL to a folder that is empty.

    Raises ``ResultError`` for a place that cannot be read, or holds more than ``MOST_BYTES``.
    """
    with _faults_as_result_errors(place, "read"):
        try:
            _fetch(place, folder)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise ResultError(
                f"{place}: cannot be copied to {folder}: {error.strerror}; free space there, or "
                "set TMPDIR to a folder that has it"
            ) from error


@contextmanager
def named_by_url(place: str, folder: Path) -> Iterator[None]:
    """Where a ``ResultError`` names the copy in ``folder``, name the place instead."""
    try:
        yield
    except ResultError as error:
        raise ResultError(str(error).replace(str(folder), place.rstrip("/"))) from error


class Sender:
    """Sends a result directory that is being written to a folder of an object store."""

    def __init__(self, place: str, directory: Path) -> None:
        """``place`` is the URL of the folder of all results. Nothing is sent yet."""
        self.place = f"{place.rstrip('/')}/{directory.name}"
        self.directory = directory
        self._sent: dict[str, tuple[int, int]] = {}
        """Size and time of what is there, by its name."""

    def send(self) -> int:
        """Send what is new or was changed, the manifest last; return how many files.

        Journals of jobs that are under way stay here. Raises ``ResultError`` if the place cannot be
        written; what was sent is not sent again.
        """
        count = 0
        with _faults_as_result_errors(self.place, "written"):
            system, root = _system(self.place)
            for name in self._names():
                path = self.directory / name
                state = path.stat()
                mark = (state.st_size, state.st_mtime_ns)
                if self._sent.get(name) == mark:
                    continue
                target = f"{root}/{name}"
                system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
                system.put_file(str(path), target)
                self._sent[name] = mark
                count += 1
        return count

    def _names(self) -> Iterator[str]:
        for folder in FOLDERS:
            for path in sorted((self.directory / folder).rglob("*")):
                under_way = folder == "trials" and path.suffix == ENDING
                if path.is_file() and not path.name.startswith(".") and not under_way:
                    yield str(path.relative_to(self.directory))
        yield MANIFEST


def check(place: str) -> None:
    """Raise ``ResultError`` if there is no way to reach such a place; nothing is written."""
    with _faults_as_result_errors(place, "written"):
        _system(place)


def _fetch(place: str, copy: Path) -> None:
    system, root = _system(place)
    wanted: list[tuple[str, str]] = []
    for folder in ("", *_READ):
        found = system.find(
            f"{root}/{folder}".rstrip("/"), maxdepth=1, withdirs=False, detail=False
        )
        wanted += [(name, str(PurePosixPath(folder, PurePosixPath(name).name))) for name in found]
    wanted = [(name, own) for name, own in wanted if "/" in own or own == MANIFEST]
    if len(wanted) > _MOST_COPIED:
        raise ResultError(
            f"{place}: has {len(wanted)} files, at most {_MOST_COPIED} are copied here"
        )
    left = MOST_BYTES
    for name, own in wanted:
        target = inside(copy, own)
        target.parent.mkdir(exist_ok=True)
        with system.open(name, "rb") as source, target.open("wb") as file:
            while piece := source.read(_PIECE_BYTES):
                left -= len(piece)
                if left < 0:
                    raise ResultError(
                        f"{place}: has more than {MOST_BYTES} bytes, which is what is copied here; "
                        "copy it yourself and give the folder"
                    )
                file.write(piece)


def _system(place: str) -> tuple[Any, str]:
    """Return the file system and the path in it."""
    try:
        fsspec = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise ResultError(
            f'{place}: a URL needs fsspec, which is not here: pip install "tunnelmark[remote]"'
        ) from error
    system, root = fsspec.url_to_fs(place)
    return system, str(root).rstrip("/")


@contextmanager
def _faults_as_result_errors(place: str, what: str) -> Iterator[None]:
    try:
        yield
    except ResultError:
        raise
    # Each store has errors of its own, and some have no common ancestor.
    except Exception as error:
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise ResultError(f"{place}: cannot be {what}: {words}") from error
