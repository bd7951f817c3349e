"""In which line of a TOML text a key stands, for error messages."""

import re
from collections.abc import Mapping
from typing import Final

Path = tuple[str | int, ...]

_HEADER: Final = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\-]+|\"[^\"\n]*\"|'[^'\n]*')\s*=")
_LONG: Final = re.compile(r'"""|\'\'\'')


def line_index(text: str) -> Mapping[Path, int]:
    """Return the line (from 1) of every table header and key, by path with array positions."""
    index: dict[Path, int] = {(): 1}
    counts: dict[Path, int] = {}
    table: Path = ()
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if closing is not None:
            if closing in line:
                closing = None
            continue
        if header := _HEADER.match(line):
            names: Path = tuple(part.strip(" \"'") for part in header.group(2).split("."))
            if header.group(1) == "[[":
                position = counts.get(names, 0)
                counts[names] = position + 1
                table = (*names, position)
                index.setdefault(names, number)
            else:
                table = names
            index.setdefault(table, number)
        elif key := _KEY.match(line):
            index.setdefault((*table, key.group(1).strip("\"'")), number)
            quotes = _LONG.findall(line)
            if len(quotes) % 2:
                closing = quotes[-1]
    return index


def line_of(index: Mapping[Path, int], path: Path) -> int:
    """Return the line of a path, or of the nearest thing around it."""
    while path and path not in index:
        path = path[:-1]
    return index.get(path, 1)
