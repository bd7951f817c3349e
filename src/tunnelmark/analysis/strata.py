"""Figures of different strata are told apart by the tunnel's name, and never pooled."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import polars as pl

from tunnelmark.model.block import BlockRecord, Stratum

MARKS: Final[Mapping[Stratum, str]] = MappingProxyType(
    {Stratum.EMULATED: ", emulated", Stratum.VIRTUALIZED: ", virtualized"}
)
"""Behind a tunnel's name; no label of a study can have a comma. Namespaces of this computer, where
most is measured, have none."""


def set_apart(trials: pl.DataFrame, blocks: Iterable[BlockRecord]) -> pl.DataFrame:
    """Return the trials, those of machines as tunnels of their own: ``none, emulated``.

    The baseline of several blocks is one point, so without this it would be averaged over CPUs
    that have nothing in common.
    """
    marks = {block.block_id: MARKS[block.stratum] for block in blocks if block.stratum in MARKS}
    if not marks or trials.is_empty():
        return trials
    mark = pl.col("block_id").replace_strict(marks, default="", return_dtype=pl.String)
    return trials.with_columns(pl.col(name) + mark for name in ("tunnel", "point_id"))


def shown_name(tunnel: str, block: BlockRecord) -> str:
    """Return what a tunnel of a block, or the baseline there, is called in a report."""
    return tunnel + MARKS.get(block.stratum, "")


def stratum_of(tunnel: str) -> Stratum:
    """Return what a name says of where its figures come from."""
    found = (stratum for stratum, mark in MARKS.items() if tunnel.endswith(mark))
    return next(found, Stratum.NAMESPACES)


def bare_name(tunnel: str) -> str:
    """Return the name without the mark of its stratum."""
    return tunnel.removesuffix(MARKS.get(stratum_of(tunnel), ""))
