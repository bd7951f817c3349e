"""Smaller versions of a study: what ``[scale.smoke]`` and ``[scale.short]`` change in it.

A change is made in the document before it is parsed, so every rule of a study holds for each of
its scales; where the parser finds fault, ``Scaled.origin`` says which line the author wrote.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tunnelmark.model.errors import StudyError
from tunnelmark.study.lines import Path
from tunnelmark.study.messages import nearest, shown

FULL: Final = "full"
"""The study as it stands, without any change."""
SMALLER: Final = ("smoke", "short")
SCALES: Final = (*SMALLER, FULL)
SECTIONS: Final = ("tunnel", "link", "device", "background", "workload")
_SETTINGS: Final = ("precision", "validity")
_KEYS: Final = ("only", *_SETTINGS, *SECTIONS)

Fail = Callable[[Path, str], StudyError]


@dataclass(frozen=True)
class Scaled:
    """A document with the changes of one scale made."""

    document: Mapping[str, Any]
    places: Mapping[Path, Path]
    """Where in the file a changed or moved part of the document stands."""

    def origin(self, place: Path) -> Path:
        """Return where a place of the document stands in the file."""
        for length in range(len(place), 0, -1):
            if (found := self.places.get(place[:length])) is not None:
                return (*found, *place[length:])
        return place


def scaled(document: Mapping[str, Any], name: str, fail: Fail) -> Scaled:
    """Return the document at a scale, without its ``scale`` tables.

    Raises what ``fail`` makes for a scale that the document does not have and for a change of
    something that is not there.
    """
    scales = document.get("scale", {})
    if not isinstance(scales, dict):
        raise fail(("scale",), "scale must be written as [scale.smoke] or [scale.short]")
    for key in scales:
        if key not in SMALLER:
            raise fail(("scale", key), f"scale.{key} is not a scale{nearest(key, SMALLER)}")
    rest = {key: value for key, value in document.items() if key != "scale"}
    if name == FULL:
        return Scaled(rest, {})
    if name not in scales:
        has = ", ".join((*(key for key in SMALLER if key in scales), FULL))
        raise fail((), f"the study has no [scale.{name}], only {has}")
    return _Changes(copy.deepcopy(rest), name, scales[name], fail).made()


def names(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scales that a document has."""
    scales = document.get("scale", {})
    # What is no table is refused by ``scaled``, with its place.
    known = scales if isinstance(scales, dict) else {}
    return tuple(name for name in SCALES if name == FULL or name in known)


class _Changes:
    def __init__(self, document: dict[str, Any], name: str, changes: Any, fail: Fail) -> None:
        self._document = document
        self._at: Path = ("scale", name)
        self._name = f"scale.{name}"
        self._changes = changes
        self._fail = fail
        self._places: dict[Path, Path] = {}

    def made(self) -> Scaled:
        if not isinstance(self._changes, dict):
            raise self._fail(self._at, f"{self._name} must be written as [{self._name}]")
        for key in self._changes:
            if key not in _KEYS:
                raise self._fail(
                    (*self._at, key),
                    f"{self._name}.{key} is not a key of a scale{nearest(key, _KEYS)}",
                )
        for section in SECTIONS:
            self._change(section)
        # Last: it moves tables, whose numbers the changes above have counted on.
        self._keep_only()
        for setting in _SETTINGS:
            self._set(setting)
        return Scaled(self._document, self._places)

    def _change(self, section: str) -> None:
        for name, table in self._table(section).items():
            place = (*self._at, section, name)
            if not isinstance(table, dict):
                raise self._fail(place, f"{self._name}.{section}.{name} must be a table")
            for position in self._named(section, name, place):
                for key, value in table.items():
                    if key in ("kind", "preset", "label"):
                        raise self._fail(
                            (*place, key),
                            f"{self._name}.{section}.{name}.{key} cannot be changed by a scale",
                        )
                    self._document[section][position][key] = value
                    self._places[section, position, key] = (*place, key)

    def _keep_only(self) -> None:
        for section, wanted in self._table("only").items():
            place = (*self._at, "only", section)
            if section not in SECTIONS:
                raise self._fail(
                    place, f"{self._name}.only.{section} is not a key{nearest(section, SECTIONS)}"
                )
            # No device at all is this machine as it is, as in a study without [[device]].
            if not isinstance(wanted, list) or not (wanted or section == "device"):
                raise self._fail(
                    place, f"{self._name}.only.{section} must be a list of labels or kinds"
                )
            if not wanted:
                self._document.pop(section, None)
                continue
            kept = sorted(
                {
                    position
                    for number, name in enumerate(wanted)
                    for position in self._named(section, name, (*place, number))
                }
            )
            tables = self._document[section]
            self._document[section] = [tables[position] for position in kept]
            moved = {
                (section, now, *at[2:]): to
                for now, before in enumerate(kept)
                for at, to in self._places.items()
                if at[:2] == (section, before)
            }
            for at in [at for at in self._places if at[0] == section]:
                del self._places[at]
            for now, before in enumerate(kept):
                self._places[section, now] = (section, before)
            self._places |= moved

    def _set(self, setting: str) -> None:
        table = self._table(setting)
        before = self._document.get(setting, {})
        if not isinstance(before, dict):
            return  # the parser says so
        for key in table:
            self._places[setting, key] = (*self._at, setting, key)
        if table:
            self._document[setting] = {**before, **table}

    def _table(self, key: str) -> dict[str, Any]:
        table = self._changes.get(key, {})
        if not isinstance(table, dict):
            raise self._fail(
                (*self._at, key), f"{self._name}.{key} is {shown(table)}, must be a table"
            )
        return table

    def _named(self, section: str, name: object, place: Path) -> list[int]:
        """Return the tables with this label, else those of this preset or kind."""
        tables = self._document.get(section, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._fail((section,), f"{section} must be written as [[{section}]]")
        for key in ("label", "preset", "kind"):
            found = [number for number, table in enumerate(tables) if table.get(key) == name]
            if found:
                return found
        known = [
            str(table.get("label", table.get("preset", table.get("kind")))) for table in tables
        ]
        raise self._fail(
            place, f"{shown(name)} is not a [[{section}]] of the study{nearest(str(name), known)}"
        )
