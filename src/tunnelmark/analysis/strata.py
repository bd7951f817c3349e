"""Figures of different strata are distinguished by the tunnel's name, and never pooled.

So are those of what a driver chose: whoever reads "wireguard" takes it for the kernel's. And those
of another environment than the one in which a result was begun: another kernel, CPU or program.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import polars as pl

from tunnelmark.model.block import BlockRecord, Stratum

_MARKS: Final[Mapping[Stratum, str]] = MappingProxyType(
    {
        Stratum.EMULATED: "emulated",
        Stratum.VIRTUALIZED: "virtualized",
        Stratum.HOSTS: "real hosts",
        Stratum.SIMULATION: "simulated",
    }
)
"""In parentheses after a name. Namespaces of this computer, where most is measured, have none."""

LABEL: Final = "tunnel_label"
"""Column of ``set_apart``: the tunnel as the study names it; ``tunnel`` is for readers."""
STRATUM: Final = "tunnel_stratum"
"""Column of ``set_apart``: where the figures of the tunnel's block come from."""

APART: Final = "tunnel_apart"
"""Column of ``set_apart``: ``in environment …`` where a trial is of another than the first of the
result, else empty."""

COMPUTER: Final = "computer"
"""Column of ``computers``."""

ELSEWHERE: Final = "in environment "
"""In a tunnel's name where a result was continued in another environment, before its key."""


def set_apart(trials: pl.DataFrame, blocks: Iterable[BlockRecord]) -> pl.DataFrame:
    """Return the trials, each under the name that ``shown_name`` gives its tunnel.

    The baseline of several blocks is one point, so without the strata it would be averaged over
    CPUs that have nothing in common. ``LABEL``, ``STRATUM`` and ``APART`` are what the name is made
    of.
    """
    strata: dict[str, str] = {}
    chosen: dict[str, str | None] = {}
    for block in blocks:
        strata[block.block_id] = block.stratum.value
        chosen[block.block_id] = _choice(block)
    if trials.is_empty():
        return trials
    trials = trials.with_columns(
        pl.col("tunnel").alias(LABEL),
        _of_block(strata, Stratum.NAMESPACES.value).alias(STRATUM),
    )
    first = trials["environment"][trials["started_at"].arg_min() or 0]
    apart = pl.when(pl.col("environment") != first).then(pl.lit(ELSEWHERE) + pl.col("environment"))
    mark = pl.concat_str(
        pl.when(~pl.col("is_baseline")).then(_of_block(chosen, None)),
        apart,
        pl.col(STRATUM).replace_strict(_MARKS, default=None, return_dtype=pl.String),
        separator=", ",
        ignore_nulls=True,
    )
    behind = pl.when(mark == "").then(pl.lit("")).otherwise(pl.lit(" (") + mark + pl.lit(")"))
    return trials.with_columns(
        *(pl.col(name) + behind for name in ("tunnel", "point_id")),
        apart.otherwise(pl.lit("")).alias(APART),
    )


def without_stratum(name: str, stratum: Stratum) -> str:
    """Return a name or point of ``set_apart`` as it would be in any other place."""
    mark = _MARKS.get(stratum)
    if mark is None:
        return name
    if name.endswith(f", {mark})"):
        return f"{name.removesuffix(f', {mark})')})"
    return name.removesuffix(f" ({mark})")


def labelled(trials: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with what ``set_apart`` adds; not set apart, all are as measured here."""
    if LABEL in trials.columns:
        return trials
    return trials.with_columns(
        pl.col("tunnel").alias(LABEL),
        pl.lit(Stratum.NAMESPACES.value).alias(STRATUM),
        pl.lit("").alias(APART),
    )


def computers() -> pl.Expr:
    """Return the column of the computers whose trials are more alike than those of others.

    A worker of a cluster is ``computer/name``. A simulation is the same on each.
    """
    own = pl.col("worker").fill_null("").str.split("/").list.first()
    return pl.when(simulated()).then(pl.lit("")).otherwise(own).alias(COMPUTER)


def simulated() -> pl.Expr:
    """Return the column that says whether a trial was simulated."""
    return pl.col("stratum").fill_null("") == Stratum.SIMULATION.value


def shown_name(tunnel: str, block: BlockRecord) -> str:
    """Return what a tunnel of a block, or the baseline there, is called in a report.

    For example ``none (emulated)``, or ``wireguard (wireguard-go, simulated)`` where the study
    leaves open which implementation is used.
    """
    own = _choice(block) if tunnel == block.tunnel else None
    marks = [mark for mark in (own, _MARKS.get(block.stratum)) if mark]
    return f"{tunnel} ({', '.join(marks)})" if marks else tunnel


def marked(words: str, stratum: Stratum) -> str:
    """Return ``UDP echo (simulated)``: words about figures of one stratum."""
    mark = _MARKS.get(stratum)
    return f"{words} ({mark})" if mark else words


def unmarked(sentence: str, stratum: Stratum) -> str:
    """Return a sentence without the mark of a stratum, where each name in it would have it."""
    mark = _MARKS.get(stratum)
    if mark is None:
        return sentence
    return sentence.replace(f" ({mark})", "").replace(f", {mark})", ")")


def _of_block(values: Mapping[str, str] | Mapping[str, str | None], other: str | None) -> pl.Expr:
    return pl.col("block_id").replace_strict(values, default=other, return_dtype=pl.String)


def _choice(block: BlockRecord) -> str | None:
    # A tunnel that is called as what was chosen says it already.
    if block.chosen is None or block.chosen in block.tunnel:
        return None
    return block.chosen
