"""TOML of strangers: parsed in memory that is a small multiple of its length."""

import re
import tomllib
from typing import Any, Final

MOST_PARTS: Final = 32
"""Of a dotted key: the parser needs memory by their square."""
_PART: Final = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_LONG: Final = re.compile(rf"""(?<![\w"'-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_PARTS}}}""")


def loads(text: str) -> dict[str, Any]:
    """Return what a text says.

    Raises ``tomllib.TOMLDecodeError``, another ``ValueError`` for a number of thousands of digits,
    and ``RecursionError``.
    """
    if (found := _LONG.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
        raise tomllib.TOMLDecodeError(
            f"Key with more than {MOST_PARTS} parts (at line {line}, column {column})"
        )
    return tomllib.loads(text)
