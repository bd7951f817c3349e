"""The end of a program's log."""

from pathlib import Path
from typing import Final

_LINE_BYTES: Final = 256
"""Lines of programs are shorter as a rule; many clients of one server write many."""
_LEAST_BYTES: Final = 1 << 16


def last_lines(log: Path, lines: int) -> str:
    """Return the last lines of a log, at most 256 bytes each on average; nothing without a log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max(_LEAST_BYTES, lines * _LINE_BYTES)))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])
