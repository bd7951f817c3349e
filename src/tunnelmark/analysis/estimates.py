"""Trials to estimates: means with intervals, and paired differences to the baseline.

Pure functions over the table of ``store.Result.trials()``. Only valid trials enter an estimate.
All points and metrics are estimated together (``columns``); what one point comes to is put into
words only where it is asked for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from tunnelmark.analysis.columns import PLACE, Row, Table
from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.strata import LABEL, STRATUM, labelled
from tunnelmark.model.baseline import load_of
from tunnelmark.model.block import Stratum
from tunnelmark.model.trial import BASELINE

_BESIDE: Final = "_beside"


@dataclass(frozen=True)
class PointEstimates:
    """All that is known of one point, over all blocks that it stands in."""

    point_id: str
    pair_id: str
    tunnel: str
    """For readers: with what was chosen and where its figures come from."""
    label: str
    """As the study names it."""
    is_baseline: bool
    link: str
    device: str
    workload: str
    workload_kind: str
    params: Mapping[str, str | int | float | bool]
    """Parameters of the workload that have a value, under their names in the store."""
    path: str
    valid: int
    invalid: int
    estimates: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]
    """To the baseline of the same block and repeat: ratio minus 1 for metrics on a log scale."""
    dead: int = 0
    """Valid trials in which nothing came through."""
    stratum: Stratum = Stratum.NAMESPACES
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """The differences of such metrics as ratio of means, the scale that points with a 0 have."""
    load: str = ""
    """Who loads the link, where that is not one client: ``5 clients``. See ``model.baseline``."""

    @property
    def payload_bytes(self) -> int | None:
        """Payload of one datagram, where the workload has one."""
        size = self.params.get("payload_bytes")
        return size if isinstance(size, int) else None

    @property
    def league(self) -> tuple[Stratum, str]:
        """Tunnels are set against each other within one.

        One on an emulated CPU is not compared with one on a native CPU, one with a client not with
        one with 50.
        """
        return self.stratum, self.load

    @property
    def broken(self) -> bool:
        """Whether nothing ever came through, in any valid trial."""
        return self.valid > 0 and self.dead == self.valid


def point_estimates(
    trials: pl.DataFrame, *, confidence: float, path: str = "total"
) -> tuple[PointEstimates, ...]:
    """Return every point of a table of trials, in order of tunnel, workload and its parameters.

    Rates and times, which are compared as ratios: Student's t on logarithms, or of the ratio of
    means (Cochran, Sampling Techniques, section 6.3) where one of them is 0. All others: Student's
    t. Of a repeat that has several valid attempts the first counts.
    """
    rows = labelled(trials).filter(pl.col("path") == path)
    if rows.is_empty():
        return ()
    rows = rows.join(_baselines(rows), on="block_id", how="left")
    places = rows.group_by(PLACE, maintain_order=True).agg(
        pl.col("valid").sum().alias("_valid"),
        (~pl.col("valid")).sum().alias("_invalid"),
        *(pl.col(name).first() for name in rows.columns if name in _NAMES or _is_param(name)),
    )
    table = Table(rows, places, confidence)
    found = [_point(row, at, table, path) for at, row in enumerate(places.iter_rows(named=True))]
    return tuple(
        sorted(
            found,
            key=lambda p: (
                *(p.link, p.device, not p.is_baseline, p.tunnel, p.workload_kind),
                natural(p.workload),
            ),
        )
    )


def natural(text: str) -> list[tuple[int, float, str]]:
    """Return a key by which ``echo 64`` stands before ``echo 512``."""
    parts = re.findall(r"\d{1,15}(?:\.\d{1,15})?|\D+|\d", text)
    return [(0, float(p), "") if p[0].isdecimal() and p.isascii() else (1, 0.0, p) for p in parts]


_NAMES: Final = frozenset(
    {"pair_id", "tunnel", LABEL, STRATUM, _BESIDE, "is_baseline", "workload", "workload_kind"}
)


def _baselines(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the label of each block's baseline."""
    own = rows.filter(pl.col("is_baseline"))
    return own.group_by("block_id").agg(pl.col(LABEL).first().alias(_BESIDE))


def _is_param(name: str) -> bool:
    return name.startswith("param_")


def _point(row: Mapping[str, Any], at: int, table: "Table", path: str) -> PointEstimates:
    return PointEstimates(
        point_id=row["point_id"],
        pair_id=row["pair_id"],
        tunnel=row["tunnel"],
        label=row[LABEL],
        is_baseline=row["is_baseline"],
        link=row["link"],
        device=row["device"],
        workload=row["workload"],
        workload_kind=row["workload_kind"],
        params={
            name.removeprefix("param_"): value
            for name, value in row.items()
            if _is_param(name) and isinstance(value, str | int | float | bool)
        },
        path=path,
        valid=row["_valid"],
        invalid=row["_invalid"],
        estimates=Row(table.estimates, at),
        differences=Row(table.differences, at),
        ratios=Row(table.ratios, at),
        dead=int(table.dead[at]),
        stratum=Stratum(row[STRATUM]),
        load=load_of(row[_BESIDE] or BASELINE),
    )
