"""The results of a folder: listed, opened by name, summarised again only when they changed."""

import os
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.errors import ResultError
from tunnelmark.report.summary import Summary, points_of, summarise
from tunnelmark.serve.seen import Seen, Watch
from tunnelmark.store import Manifest, Result, open_result
from tunnelmark.store.manifest import read_manifest

MOST_RESULTS: Final = 500
"""Listed, the newest; more are read by name."""
_MOST_KEPT: Final = 4
"""Summaries in memory."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Entry:
    """One directory of the folder."""

    name: str
    manifest: Manifest | None
    """None: it cannot be read, see ``error``."""
    error: str = ""

    @property
    def state(self) -> str:
        """How the run ended, in a word or two."""
        return "cannot be read" if self.manifest is None else self.manifest.outcome or "not ended"


class Library:
    """The results in one folder; a folder that is itself a result is the only one."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; nothing is read yet."""
        folder = folder.resolve()
        single = (folder / "manifest.json").is_file()
        self.folder = folder.parent if single else folder
        self._only = folder.name if single else None
        self._lock = threading.Lock()
        self._pointed: tuple[str, tuple[int, ...], Result, tuple[PointEstimates, ...]] | None = None
        self._watched: tuple[str, tuple[int, ...], Seen] | None = None
        self._watch: Watch | None = None
        self._kept: OrderedDict[str, tuple[tuple[int, ...], Result, Summary]] = OrderedDict()

    def entries(self) -> tuple[Entry, ...]:
        """Return the newest results, those that cannot be read with the reason."""
        found = [self._entry(name) for name in self._names()[:MOST_RESULTS]]
        begun = {e.name: e.manifest.started_at if e.manifest else "" for e in found}
        return tuple(sorted(found, key=lambda e: (begun[e.name], e.name), reverse=True))

    def open(self, name: str) -> Result:
        """Open a result by its name; ``ResultError`` if there is none of that name."""
        return open_result(self._path(name))

    def summary(self, name: str) -> tuple[Result, Summary]:
        """Return a result with its summary: of an unchanged result the one that is kept.

        One summary is made at a time: it is seconds of work, and a browser may ask often.
        """
        path = self._path(name)
        with self._lock:
            stamp = _stamp(path)
            kept = self._kept.get(name)
            if kept is None or kept[0] != stamp:
                result = open_result(path)
                kept = self._kept[name] = (stamp, result, summarise(result))
            self._kept.move_to_end(name)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return kept[1], kept[2]

    def points(self, name: str) -> tuple[Result, tuple[PointEstimates, ...]]:
        """Return a result with all its points: much less work than its summary."""
        path = self._path(name)
        with self._lock:
            stamp = _stamp(path)
            kept = self._kept.get(name)
            if kept is not None and kept[0] == stamp:
                return kept[1], kept[2].points
            if self._pointed is None or self._pointed[:2] != (name, stamp):
                result = open_result(path)
                self._pointed = (name, stamp, result, points_of(result))
            return self._pointed[2:]

    def seen(self, name: str) -> Seen:
        """Return how far a run has come; nothing is read again that has not changed.

        A page asks every two seconds, on the machine that measures.
        """
        path = self._path(name)
        with self._lock:
            stamp = _stamp(path)
            if self._watched is None or self._watched[:2] != (name, stamp):
                if self._watch is None or self._watch.directory != path:
                    self._watch = Watch(path)
                self._watched = (name, stamp, self._watch.look())
            return self._watched[2]

    def _names(self) -> list[str]:
        if self._only is not None:
            return [self._only]
        try:
            with os.scandir(self.folder) as entries:
                found = [
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                    for entry in entries
                    if _NAME.fullmatch(entry.name)
                    and entry.is_dir(follow_symlinks=False)
                    and (Path(entry.path) / "manifest.json").is_file()
                ]
        except OSError:
            return []
        return [name for _, name in sorted(found, reverse=True)]

    def _entry(self, name: str) -> Entry:
        try:
            return Entry(name, read_manifest(self._path(name)))
        except ResultError as error:
            return Entry(name, None, str(error))

    def _path(self, name: str) -> Path:
        """Return a direct folder of ours; what a link leads to is none."""
        path = self.folder / name
        ours = _NAME.fullmatch(name) and name == (self._only or name)
        if not ours or path.is_symlink() or not path.is_dir():
            raise ResultError(f"there is no result named {name!r}")
        return path


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes when anything of a result does."""
    places = [path / "manifest.json", *(path / "trials").glob("*"), *(path / "blocks").glob("*")]
    found = []
    for place in places:
        try:
            found.append(place.stat().st_mtime_ns)
        except OSError:
            continue  # was replaced meanwhile: the next request sees the new one
    return (len(found), *sorted(found))
