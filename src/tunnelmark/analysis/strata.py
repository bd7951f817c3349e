"""Figures of different strata are distinguished by the tunnel's name, and never pooled.

So are those of what a driver chose: whoever reads "wireguard" takes it for the kernel's. And those
of another environment than the one in which a result was begun: another kernel, CPU or program.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import polars as pl

from tunnelmark.model.block import BlockRecord, Stratum

MARKS: Final[Mapping[Stratum, str]] = MappingProxyType(
    {
        Stratum.EMULATED: ", emulated",
        Stratum.VIRTUALIZED: ", virtualized",
        Stratum.HOSTS: ", real hosts",
        Stratum.SIMULATION: ", simulated",
    }
)
"""Behind a tunnel's name; no label of a study can have a comma. Namespaces of this computer, where
most is measured, have none."""

COMPUTER: Final = "computer"
"""Column of ``computers``."""

ELSEWHERE: Final = ", in environment "
"""Behind a tunnel's name where a result was continued in another environment, with its key."""


def set_apart(trials: pl.DataFrame, blocks: Iterable[BlockRecord]) -> pl.DataFrame:
    """Return the trials, each under the name that ``shown_name`` gives its tunnel.

    The baseline of several blocks is one point, so without the strata it would be averaged over
    CPUs that have nothing in common.
    """
    strata: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for block in blocks:
        strata[block.block_id] = MARKS.get(block.stratum, "")
        chosen[block.block_id] = _choice(block)
    if trials.is_empty():
        return trials
    first = trials["environment"][trials["started_at"].arg_min() or 0]
    elsewhere = pl.col("environment") != first
    moved = bool(trials.select(elsewhere.any()).item())
    if not moved and not any((*strata.values(), *chosen.values())):
        return trials

    def of_block(marks: Mapping[str, str]) -> pl.Expr:
        return pl.col("block_id").replace_strict(marks, default="", return_dtype=pl.String)

    own = pl.when(pl.col("is_baseline")).then(pl.lit("")).otherwise(of_block(chosen))
    place = pl.when(elsewhere).then(pl.lit(ELSEWHERE) + pl.col("environment")).otherwise(pl.lit(""))
    mark = own + place + of_block(strata)
    return trials.with_columns(pl.col(name) + mark for name in ("tunnel", "point_id"))


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

    For example ``none, emulated``, or ``wireguard, wireguard-go`` where the study leaves that open.
    """
    return (
        tunnel + (_choice(block) if tunnel == block.tunnel else "") + MARKS.get(block.stratum, "")
    )


def stratum_of(tunnel: str) -> Stratum:
    """Return what a name says of where its figures come from."""
    found = (stratum for stratum, mark in MARKS.items() if tunnel.endswith(mark))
    return next(found, Stratum.NAMESPACES)


def bare_name(tunnel: str) -> str:
    """Return the name as the study has it: no label can have a comma."""
    return tunnel.partition(",")[0]


def _choice(block: BlockRecord) -> str:
    # A tunnel that is called as what was chosen says it already.
    if block.chosen is None or block.chosen in block.tunnel:
        return ""
    return f", {block.chosen}"
