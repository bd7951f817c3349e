"""Figures of emulated CPUs are told apart from native ones: by their name, and never pooled."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from tunnelmark.model.block import BlockRecord

MARK: Final = ", emulated"
"""Behind a tunnel's name; no label of a study can have a comma."""


def set_apart(trials: pl.DataFrame, blocks: Iterable[BlockRecord]) -> pl.DataFrame:
    """Return the trials, those of emulated CPUs as tunnels of their own: ``none, emulated``.

    The baseline of several blocks is one point, so without this it would be averaged over CPUs
    that have nothing in common.
    """
    emulated = [block.block_id for block in blocks if block.emulated]
    if not emulated or trials.is_empty():
        return trials
    there = pl.col("block_id").is_in(emulated)
    return trials.with_columns(
        pl.when(there).then(pl.col(name) + MARK).otherwise(pl.col(name)).alias(name)
        for name in ("tunnel", "point_id")
    )


def shown_name(tunnel: str, block: BlockRecord) -> str:
    """Return what a tunnel of a block, or the baseline there, is called in a report."""
    return tunnel + MARK if block.emulated else tunnel


def is_marked(tunnel: str) -> bool:
    """Say whether a name is that of figures of an emulated CPU."""
    return tunnel.endswith(MARK)
