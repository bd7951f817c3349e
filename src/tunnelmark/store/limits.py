"""How much of a result that others may have written is read.

A file of a megabyte may say that it has a billion rows alike, or a thousand names of columns: what
it comes to is known, and refused, before it is built.
"""

from dataclasses import dataclass
from typing import Final

LARGEST_FILE_BYTES: Final = 4 << 30
"""Of trials or samples; a file that is longer is not ours."""
MOST_ROWS: Final = 1_000_000
"""Of one block: attempts times paths."""
MOST_COLUMNS: Final = 1000
"""Of a result: about 30 of each trial, 200 metrics, and the parameters of all workloads."""
MOST_VALUES: Final = 250_000_000
"""Rows times columns of one block, all of its rows with all that we write: 8 bytes each."""
MOST_VALUES_OF_ALL: Final = 2_000_000_000
"""The same of all blocks."""


class LimitError(Exception):
    """More than is allowed."""


@dataclass(frozen=True)
class Limits:
    """What one table may have at most."""

    rows: int = MOST_ROWS
    columns: int = MOST_COLUMNS
    values: int = MOST_VALUES
    text_bytes: int = LARGEST_FILE_BYTES
    """In one column."""

    def check(self, *, rows: int, columns: int) -> None:
        """Raise ``LimitError`` for a table that is larger."""
        self._check("rows", rows, self.rows)
        self._check("columns", columns, self.columns)
        self.check_values(rows * columns)

    def check_values(self, values: int) -> None:
        """Raise ``LimitError`` for so many, in lists or not."""
        self._check("values", values, self.values)

    def check_text(self, length_bytes: int) -> None:
        """Raise ``LimitError`` for so much text in a column."""
        self._check("bytes of text in a column", length_bytes, self.text_bytes)

    @staticmethod
    def _check(what: str, found: int, most: int) -> None:
        if found > most:
            raise LimitError(f"has {found} {what}, at most {most} are allowed")
