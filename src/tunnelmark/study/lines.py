"""In which line of a TOML text a key stands, for error messages."""

import re
from collections.abc import Mapping
from typing import Final

Path = tuple[str | int, ...]
"""Keys and positions in lists, from the top of the document: ``("tunnel", 0, "cipher")``."""


def line_index(text: str) -> Mapping[Path, int]:
    """Return the line (from 1) of every table, key and list element.

    ``text`` must be TOML that ``tomllib`` has accepted: this scanner finds places, it judges
    nothing. A table written as ``[a]`` stands where its header does, one that only follows from
    ``[a.b]`` or ``a.b = 1`` where it is named first. Raises ``ValueError`` on other texts.
    """
    return _Scanner(text).document()


def line_of(index: Mapping[Path, int], path: Path) -> int:
    """Return the line of a path, or of the nearest thing around it."""
    while path and path not in index:
        path = path[:-1]
    return index.get(path, 1)


# TOML 1.0, https://toml.io/en/v1.0.0
_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BASIC: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL: Final = re.compile(r"'[^'\n]*'")
# Up to two quotes may stand before the closing three.
_LONG_BASIC: Final = re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}', re.DOTALL)
_LONG_LITERAL: Final = re.compile(r"'''(?:[^']|'{1,2}(?!'))*'{3,5}", re.DOTALL)
_PLAIN: Final = re.compile(r"[^,\]}#\n]+")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._index: dict[Path, int] = {(): 1}
        self._lengths: dict[Path, int] = {}
        """Arrays of tables so far; a header below one means its last element."""

    def document(self) -> Mapping[Path, int]:
        table: Path = ()
        while True:
            self._take(_BLANK)
            if self._at == len(self._text):
                return self._index
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._line
        brackets = "[[" if self._text.startswith("[[", self._at) else "["
        self._literally(brackets)
        keys = self._keys()
        self._literally("]" * len(brackets))
        path: Path = ()
        for key in keys[:-1]:
            path = self._last(self._enter((*path, key), line))
        path = (*path, keys[-1])
        if brackets == "[":
            # A table that was only implied before stands where its own header is.
            self._index[path] = line
            return path
        self._enter(path, line)
        position = self._lengths.get(path, 0)
        self._lengths[path] = position + 1
        return self._enter((*path, position), line)

    def _pair(self, table: Path) -> None:
        line = self._line
        keys = self._keys()
        path = table
        for key in keys:
            path = self._enter((*path, key), line)
        self._literally("=")
        self._value(path)

    def _keys(self) -> list[str]:
        keys = [self._key()]
        while self._text.startswith(".", self._at):
            self._literally(".")
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        self._take(_SPACE)
        if self._text.startswith('"', self._at):
            key = _ESCAPE.sub(_unescaped, self._take(_BASIC)[1:-1])
        elif self._text.startswith("'", self._at):
            key = self._take(_LITERAL)[1:-1]
        else:
            key = self._take(_BARE_KEY)
        self._take(_SPACE)
        return key

    def _value(self, path: Path) -> None:
        self._take(_SPACE)
        for opening, pattern in (
            ('"""', _LONG_BASIC),
            ("'''", _LONG_LITERAL),
            ('"', _BASIC),
            ("'", _LITERAL),
        ):
            if self._text.startswith(opening, self._at):
                self._take(pattern)
                return
        if self._text.startswith("[", self._at):
            self._array(path)
        elif self._text.startswith("{", self._at):
            self._inline_table(path)
        else:
            self._take(_PLAIN)

    def _array(self, path: Path) -> None:
        self._literally("[")
        position = 0
        while True:
            self._take(_BLANK)
            if self._text.startswith("]", self._at):
                self._literally("]")
                return
            self._value(self._enter((*path, position), self._line))
            position += 1
            self._take(_BLANK)
            if self._text.startswith(",", self._at):
                self._literally(",")

    def _inline_table(self, path: Path) -> None:
        self._literally("{")
        while True:
            self._take(_BLANK)
            if self._text.startswith("}", self._at):
                self._literally("}")
                return
            self._pair(path)
            self._take(_BLANK)
            if self._text.startswith(",", self._at):
                self._literally(",")

    def _enter(self, path: Path, line: int) -> Path:
        self._index.setdefault(path, line)
        return path

    def _last(self, path: Path) -> Path:
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _literally(self, wanted: str) -> None:
        if not self._text.startswith(wanted, self._at):
            raise self._wrong()
        self._at += len(wanted)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._wrong()
        self._at = match.end()
        taken = match.group()
        self._line += taken.count("\n")
        return taken

    def _wrong(self) -> ValueError:
        return ValueError(f"line {self._line} is not the TOML that was parsed")


def _unescaped(match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    if short or long:
        return chr(int(short or long, 16))
    return _ESCAPED.get(letter, letter)
