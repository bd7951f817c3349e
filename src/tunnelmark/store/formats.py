"""One converter per format version: every older result directory is read as if it were new."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError

FORMAT: Final = 1
"""Version that is written."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Converter:
    """Turns what a result directory of one version holds into the next version."""

    manifest: Callable[[Json], Json] = lambda raw: raw
    block: Callable[[Json], Json] = lambda raw: raw
    trials: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame


Converters = Mapping[int, Converter]

CONVERTERS: Final[Converters] = {}
"""Format version to what turns it into the next one; empty while there is only one version."""


def steps(
    raw: object, place: str, *, converters: Converters = CONVERTERS, newest: int = FORMAT
) -> tuple[Converter, ...]:
    """Return the converters to apply, oldest first, for a manifest as it was read.

    Raises ``ResultError`` naming ``place`` for a version that is newer, or that never was.
    """
    version = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(version, bool) or not isinstance(version, int):
        raise ResultError(f"{place}: has no format version, must be 1 to {newest}")
    if version > newest:
        raise ResultError(
            f"{place}: has format {version}, this Tunnelmark reads up to {newest}; take a newer one"
        )
    if version < min((*converters, newest)):
        raise ResultError(f"{place}: has format {version}, which never was")
    return tuple(converters[step] for step in range(version, newest))
