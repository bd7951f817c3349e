"""A table of a publication with what was measured here beside each of its numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One published number."""

    cells: tuple[str, ...]
    published: str
    measured: str
    difference: str


@dataclass(frozen=True)
class Beside:
    """One table of the original."""

    number: str
    title: str
    unit: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    found: int
    """Rows that have a measured figure."""
