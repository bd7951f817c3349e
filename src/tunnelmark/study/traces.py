"""Traces of links: files beside a study, whose digests a loaded study has with it.

A trace may have 64 MiB, too much for the text of a study. So ``[[trace]]`` tables behind the text
say what each file contained when the study was loaded from a file: a resumed run and a worker
refuse another content, whose figures would be pooled with those of the first. Who only reads a
result does not ask: it stays what was measured.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tunnelmark.links.trace import DIGESTS, TraceLink
from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.model.trial import DriverSpec
from tunnelmark.study.drivers import Fail
from tunnelmark.study.messages import shown
from tunnelmark.study.recipes import quoted, values_of
from tunnelmark.study.study import Study

_KEYS: Final = ("path", "sha256")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def with_traces(text: str, links: Iterable[DriverSpec]) -> str:
    """Return a study, which was parsed to ``links``, with the digests of their traces behind it."""
    found = dict(pair for link in links for pair in _digests(link))
    known = _pinned(text)
    tables = [
        f"\n[[trace]]\npath = {quoted(path)}\nsha256 = {quoted(digest)}\n"
        for path, digest in found.items()
        if path not in known
    ]
    return "".join([text, *tables])


def check_tables(document: Mapping[str, Any], fail: Fail) -> None:
    """Raise ``StudyError`` for what is wrong with a study's own ``[[trace]]`` tables."""
    tables = document.get("trace", [])
    if not isinstance(tables, list):
        raise fail(("trace",), "trace must be written as [[trace]]")
    for number, table in enumerate(tables):
        place = ("trace", number)
        path, digest = values_of(table, _KEYS, place, fail)
        if not isinstance(path, str):
            raise fail(place, f"trace.path is {shown(path)}, must be a string")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise fail(
                place, f"trace.sha256 is {shown(digest)}, must be 64 lower-case hexadecimal digits"
            )


def check_traces(study: Study) -> None:
    """Raise ``StudyError`` for a trace that contains something else than the study says."""
    known = _pinned(study.text)
    for link in study.links:
        for path, digest in _digests(link):
            if (earlier := known.get(path, digest)) != digest:
                raise StudyError(
                    f"{study.source}: link {link.label}: {path} has changed since the study was "
                    f"begun: its SHA-256 is {digest[:16]}…, not {earlier[:16]}… (put the file "
                    "back, or begin a new run)"
                )


def _pinned(text: str) -> dict[str, str]:
    """Return the digests of a parsed study's own tables by path."""
    return {table["path"]: table["sha256"] for table in toml.loads(text).get("trace", [])}


def _digests(link: DriverSpec) -> list[tuple[str, str]]:
    if link.kind != TraceLink.kind:
        return []
    return [
        (str(path), str(link.columns[column]))
        for name, column in DIGESTS.items()
        if (path := link.columns.get(name)) is not None
    ]
