"""Trials to estimates: means with intervals, and paired differences to the baseline.

Pure functions over the table of ``store.Result.trials()``. Only valid trials enter an estimate.
All points and metrics are estimated together, in grouped operations; what one point comes to is
put into words only where it is asked for.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from scipy import special

from tunnelmark.analysis.grouped import Bools, Floats, Grouping, Ints, Summaries
from tunnelmark.analysis.strata import COMPUTER, LABEL, STRATUM, computers, labelled, simulated
from tunnelmark.analysis.testing import FEWEST, Spread, is_certain, one_of
from tunnelmark.model.baseline import load_of
from tunnelmark.model.block import Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE

Method = Literal["t", "t on logarithms", "t of a ratio of means", "none"]
Unit = tuple[str, str, int, int]
"""What is independent: the computer where there are several (``""`` and 0 behind it), else block
and bring-up (0 behind it), or also the repeat where there is one bring-up only."""

_SLOT: Final = ("block_id", "bring_up", "repeat")
_UP: Final = (COMPUTER, "block_id", "bring_up")
_PLACE: Final = ("point_id", "link", "device")
_BESIDE: Final = "_beside"


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, in the metric's own unit."""

    metric: str
    n: int
    value: float
    low: float | None
    """None: fewer than four repeats, or all of them alike: nothing is known of their scatter. But
    see ``testing.is_certain``."""
    high: float | None
    confidence: float
    method: Method
    bring_ups: int = 1
    """In so many starts of the tunnel; the interval of a single one is of its repeats only."""
    workers: int = 1
    """On so many computers; the interval of a single one is of that one."""
    between: float | None = None
    """Share of the variance of single figures that lies between bring-ups; None with one."""
    spread: Spread | None = None
    """The same on the scale on which it is judged; None where there is no interval of ours."""
    clock_error: float = 0.0
    """So far each end of the interval is moved out by the error of two clocks; of values only."""
    units: Mapping[Unit, float] = field(default_factory=dict, repr=False, compare=False)
    """Mean of each independent unit, on that scale; of differences only."""


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
    places = rows.group_by(_PLACE, maintain_order=True).agg(
        pl.col("valid").sum().alias("_valid"),
        (~pl.col("valid")).sum().alias("_invalid"),
        *(pl.col(name).first() for name in rows.columns if name in _NAMES or _is_param(name)),
    )
    table = _Table(rows, places, confidence)
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


def _point(row: Mapping[str, Any], at: int, table: "_Table", path: str) -> PointEstimates:
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
        estimates=_Row(table.estimates, at),
        differences=_Row(table.differences, at),
        dead=int(table.dead[at]),
        stratum=Stratum(row[STRATUM]),
        load=load_of(row[_BESIDE] or BASELINE),
    )


@dataclass(frozen=True)
class _Column:
    """One metric of all points, as values or as differences."""

    metric: str
    found: Summaries
    logarithmic: Bools
    relative: Bools
    """Differences that are a ratio of means less 1."""
    low: Floats
    high: Floats
    confidence: float
    units: Callable[[int], Mapping[Unit, float]]
    is_value: bool
    bias: Floats
    """Error that the trials share, on the scale: that of two clocks. Infinite: has no bound."""
    moved: Floats
    """The same in the metric's own unit; of values only."""
    certain: Bools
    """Whether it is known without any scatter."""

    def of(self, at: int) -> Estimate:
        """Return what one point comes to."""
        own = one_of(self.found, at, float(self.bias[at]))
        logarithmic = bool(self.logarithmic[at])
        back = _back(logarithmic, difference=not self.is_value)
        if self.certain[at]:
            own = replace(own, error=0.0, freedom=math.inf, bias=0.0)
        low, high = (float(end[at]) for end in (self.low, self.high))
        known = not math.isnan(low)
        between = float(self.found.between[at]) if own.bring_ups > 1 else math.nan
        names: tuple[Method, Method] = (
            "t on logarithms" if logarithmic else "t",
            "t of a ratio of means",
        )
        moved = float(self.moved[at])
        # What is compared as a ratio is never below 0.
        floor = 0.0 if moved and METRICS[self.metric].scale == "log" else -math.inf
        return Estimate(
            self.metric,
            own.repeats,
            back(own.value),
            max(floor, back(low) - moved) if known else None,
            back(high) + moved if known else None,
            self.confidence,
            "none" if not known else names[bool(self.relative[at])],
            own.bring_ups,
            own.workers,
            None if math.isnan(between) else between,
            own,
            moved,
            {} if self.is_value else self.units(at),
        )


class _Row(Mapping[str, Estimate]):
    """The metrics of one point, made where they are asked for."""

    def __init__(self, columns: Mapping[str, _Column], at: int) -> None:
        self._columns, self._at = columns, at
        self._made: dict[str, Estimate] = {}

    def __getitem__(self, metric: str) -> Estimate:
        if metric not in self._made:
            column = self._columns[metric]
            if not column.found.repeats[self._at]:
                raise KeyError(metric)
            self._made[metric] = column.of(self._at)
        return self._made[metric]

    def __contains__(self, metric: object) -> bool:
        column = self._columns.get(str(metric))
        return column is not None and bool(column.found.repeats[self._at])

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._columns if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Table:
    """All points of a path, metric by metric."""

    def __init__(self, rows: pl.DataFrame, places: pl.DataFrame, confidence: float) -> None:
        self._confidence = confidence
        numbered = places.select(*_PLACE).with_row_index("_point")
        metrics = [m for m in METRICS if m in rows.columns and rows[m].null_count() < rows.height]
        valid = (
            rows.filter(pl.col("valid"))
            .unique((*_PLACE, *_SLOT), keep="first", maintain_order=True)
            .select(
                *(*_PLACE, *_SLOT, computers(), simulated().alias("_simulated")),
                *("pair_id", "is_baseline", *metrics),
            )
            .join(numbered, on=_PLACE)
            .sort("_point", *_UP, maintain_order=True)
            .with_row_index("_row")
        )
        self._slots = valid.select(*_UP, "repeat")
        points = len(places)
        self._own = _grouping(valid, points)
        self._simulated: Bools = np.zeros(points, dtype=np.bool_)
        self._simulated[self._own.group[valid["_simulated"].to_numpy()]] = True
        beside = valid.filter(pl.col("is_baseline")).select(
            *_UP, "repeat", "pair_id", "link", "device", pl.col("_row").alias("_beside")
        )
        pairs = (
            valid.filter(~pl.col("is_baseline"))
            .select(*_UP, "repeat", "pair_id", "link", "device", "_row", "_point")
            .join(beside, on=(*_UP, "repeat", "pair_id", "link", "device"))
            .sort("_row")
        )
        self._paired = _grouping(pairs, points)
        self._pair_rows: Ints = pairs["_row"].to_numpy().astype(np.int64)
        self._beside: Ints = pairs["_beside"].to_numpy().astype(np.int64)
        self.estimates: dict[str, _Column] = {}
        self.differences: dict[str, _Column] = {}
        dead = np.zeros(valid.height, dtype=np.bool_)
        for metric in metrics:
            values = valid[metric].to_numpy().astype(np.float64)
            errors = clock_errors(valid, metric)
            self.estimates[metric] = self._values(metric, values, errors)
            if pairs.height:
                self.differences[metric] = self._differences(metric, values, errors)
            if metric in _NOTHING_CAME:
                dead |= values == _NOTHING_CAME[metric]
        self.dead: Ints = np.bincount(self._own.group[dead], minlength=points)

    def _values(self, metric: str, values: Floats, errors: Floats) -> _Column:
        rows = ~np.isnan(values)
        logarithmic = np.zeros(self._own.groups, dtype=np.bool_)
        if METRICS[metric].scale == "log":
            logarithmic = self._own.lowest(values, rows) > 0
        scaled = _logarithms(values, logarithmic[self._own.group])
        found = self._own.summaries(scaled, rows)
        none = np.zeros_like(logarithmic)
        bias = _of_each(self._own, _shift(values, errors, logarithmic[self._own.group]), rows)
        moved = _of_each(self._own, errors, rows)
        return self._column(
            metric, found, logarithmic, none, _no_units, is_value=True, bias=bias, moved=moved
        )

    def _differences(self, metric: str, values: Floats, errors: Floats) -> _Column:
        paired = self._paired
        own, beside = values[self._pair_rows], values[self._beside]
        rows = ~(np.isnan(own) | np.isnan(beside))
        logarithmic = relative = np.zeros(paired.groups, dtype=np.bool_)
        scaled = own - beside
        own_error, base_error = errors[self._pair_rows], errors[self._beside]
        shift = own_error + base_error
        if METRICS[metric].scale == "log":
            logarithmic = paired.lowest(np.minimum(own, beside), rows) > 0
            in_logs = logarithmic[paired.group]
            # One 0 leaves no logarithm: then the ratio of the means, its scatter by linearisation.
            base = paired.summaries(beside, rows).mean
            ratio = paired.summaries(own, rows).mean / np.where(base > 0, base, np.nan)
            relative = ~logarithmic & (base > 0)
            at = paired.group
            with np.errstate(divide="ignore", invalid="ignore"):
                linear = (own - ratio[at] * beside) / base[at] + ratio[at] - 1
            logs = _logarithms(own, in_logs) - _logarithms(beside, in_logs)
            scaled = np.where(in_logs, logs, linear)
            apart = _shift(own, own_error, in_logs) + _shift(beside, base_error, in_logs)
            # A ratio of means, of which one is 0, has no bound by two clocks.
            shift = np.where(in_logs | (shift == 0), apart, np.inf)
            rows = rows & (in_logs | relative[at])
        found = paired.summaries(scaled, rows)

        def units(at: int) -> Mapping[Unit, float]:
            return self._units(at, scaled, rows)

        bias = _of_each(paired, shift, rows)
        return self._column(metric, found, logarithmic, relative, units, is_value=False, bias=bias)

    def _column(
        self,
        metric: str,
        found: Summaries,
        logarithmic: Bools,
        relative: Bools,
        units: Callable[[int], Mapping[Unit, float]],
        *,
        is_value: bool,
        bias: Floats,
        moved: Floats | None = None,
    ) -> _Column:
        half = _quantiles(found.freedom, self._confidence) * found.error
        half[(found.repeats < FEWEST) | (found.error == 0)] = np.nan
        certain = ~(found.error > 0) & is_certain(metric, simulated=False)
        if is_certain(metric, simulated=True):
            certain |= self._simulated & (found.error == 0)
        half[certain] = 0.0
        if not is_value:
            # An interval from nothing to everything tells nothing.
            half = np.where(np.isinf(bias), np.nan, half + bias)
        return _Column(
            metric,
            found,
            logarithmic,
            relative,
            found.mean - half,
            found.mean + half,
            self._confidence,
            units,
            is_value,
            bias,
            np.zeros_like(bias) if moved is None else moved,
            certain,
        )

    def _units(self, point: int, scaled: Floats, rows: Bools) -> Mapping[Unit, float]:
        group = self._paired.group
        first, last = np.searchsorted(group, (point, point + 1))
        own: dict[Unit, list[float]] = {}
        ups = len(np.unique(self._paired.bring_up[first:last][rows[first:last]]))
        for at in range(first, last):
            if rows[at]:
                computer, block, up, repeat = self._slots.row(int(self._pair_rows[at]))
                unit = (computer, block, up, 0 if ups > 1 else repeat)
                own.setdefault(unit, []).append(float(scaled[at]))
        if len({unit[0] for unit in own}) > 1:
            of_computers: dict[Unit, list[float]] = {}
            for (computer, *_), value in _means(own).items():
                of_computers.setdefault((computer, "", 0, 0), []).append(value)
            own = of_computers
        return _means(own)


_NOTHING_CAME: Final[Mapping[str, float]] = {
    "loss_forward_ratio": 1.0,
    "loss_reverse_ratio": 1.0,
    **{
        name: 0.0
        for name, metric in METRICS.items()
        if metric.headline and (metric.unit, metric.better) == ("bit/s", "higher")
    },
}
"""Figures of which one says that a trial carried nothing."""


def _means(own: Mapping[Unit, Sequence[float]]) -> dict[Unit, float]:
    return {unit: math.fsum(values) / len(values) for unit, values in own.items()}


def _grouping(rows: pl.DataFrame, points: int) -> Grouping:
    if not rows.height:
        empty: Ints = np.zeros(0, dtype=np.int64)
        return Grouping(empty, empty, empty, empty, points)
    up, worker = _numbered(rows, "_point", *_UP), _numbered(rows, "_point", COMPUTER)
    first = np.flatnonzero(np.diff(up, prepend=-1))
    group: Ints = rows["_point"].to_numpy().astype(np.int64)
    return Grouping(group, up, group[first], worker[first], points)


def _numbered(rows: pl.DataFrame, *names: str) -> Ints:
    """Return the number of each row's stretch of rows that are alike in some columns."""
    columns = rows.select(names)
    changed = columns.select(
        pl.any_horizontal(pl.all() != pl.all().shift(1)).fill_null(value=True)
    ).to_series()
    found: Ints = changed.cum_sum().to_numpy().astype(np.int64) - 1
    return found


def clock_errors(trials: pl.DataFrame, metric: str) -> Floats:
    """Return how far each trial's figure may be off by the error of two clocks; 0 with one."""
    meaning = METRICS[metric]
    if meaning.clock_error is None or meaning.clock_error not in trials.columns:
        return np.zeros(trials.height)
    errors: Floats = trials[meaning.clock_error].fill_null(0.0).to_numpy().astype(np.float64)
    return errors * meaning.clock_errors


def _of_each(grouping: Grouping, errors: Floats, rows: Bools) -> Floats:
    """Return the error of the mean of each group: all may be off the same way, so none cancels."""
    if not errors.any():
        return np.zeros(grouping.groups)
    largest = np.zeros(grouping.groups)
    np.maximum.at(largest, grouping.group[rows], errors[rows])
    return largest


def _shift(values: Floats, errors: Floats, where: Bools) -> Floats:
    """Return errors on the scale of logarithms ``where`` that is it; no bound: infinite.

    Downwards a logarithm moves further than upwards, so that is the bound of both.
    """
    if not errors.any():
        return errors
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(errors < values, -np.log1p(-errors / values), np.inf)
    return np.where(where & (errors > 0), logs, errors)


def _logarithms(values: Floats, where: Bools) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(where, np.log(values), values)


def _quantiles(freedom: Floats, confidence: float) -> Floats:
    kinds, at = np.unique(freedom, return_inverse=True)
    with np.errstate(invalid="ignore"):
        found: Floats = np.array([_quantile(float(one), confidence) for one in kinds])
    return found[at]


@cache
def _quantile(freedom: float, confidence: float) -> float:
    return float(special.stdtrit(freedom, (1 + confidence) / 2)) if freedom > 0 else math.nan


def _no_units(_: int) -> Mapping[Unit, float]:
    return {}


_MOST_EXPONENT: Final = 700.0
"""e to more than this is not a float."""


def _back(logarithmic: bool, *, difference: bool) -> Callable[[float], float]:
    if not logarithmic:
        return float
    back = math.expm1 if difference else math.exp
    return lambda value: back(min(value, _MOST_EXPONENT))
