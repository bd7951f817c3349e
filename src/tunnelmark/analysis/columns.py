"""All points of a table of trials, metric by metric: estimated together, in grouped operations."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import polars as pl
from scipy import special

from tunnelmark.analysis.estimate import Estimate, Method, Unit, coarser, means
from tunnelmark.analysis.grouped import Bools, Floats, Grouping, Ints, Summaries
from tunnelmark.analysis.strata import COMPUTER, computers, simulated
from tunnelmark.analysis.testing import FEWEST, is_certain, one_of
from tunnelmark.model.metrics import METRICS

PLACE: Final = ("point_id", "link", "device")
"""What a point is."""
_SLOT: Final = ("block_id", "bring_up", "repeat")
_UP: Final = (COMPUTER, "block_id", "bring_up")
_PAIR: Final = (*_UP, "repeat", "environment", "pair_id", "link", "device")
"""What a trial and that of the baseline beside it have in common."""


def _no_units(_: int) -> Mapping[Unit, float]:
    return {}


@dataclass(frozen=True)
class Column:
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
    """``_no_units`` of values."""
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
        back = _back(logarithmic, difference=self.units is not _no_units)
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
        # What is compared as a ratio is never below 0, and never less by more than all of it.
        floor = 0.0 if moved and METRICS[self.metric].scale == "log" else -math.inf
        floor = -1.0 if self.relative[at] else floor
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
            logarithmic,
            self.units(at),
        )


class Row(Mapping[str, Estimate]):
    """The metrics of one point, made where they are asked for."""

    def __init__(self, columns: Mapping[str, Column], at: int) -> None:
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


class Table:
    """All points of a path, metric by metric."""

    def __init__(self, rows: pl.DataFrame, places: pl.DataFrame, confidence: float) -> None:
        self._confidence = confidence
        numbered = places.select(*PLACE).with_row_index("_point")
        metrics = [m for m in METRICS if m in rows.columns and rows[m].null_count() < rows.height]
        valid = (
            rows.filter(pl.col("valid"))
            .unique((*PLACE, *_SLOT), keep="first", maintain_order=True)
            .select(
                *(*PLACE, *_SLOT, computers(), simulated().alias("_simulated")),
                *("environment", "pair_id", "is_baseline", *metrics),
            )
            .join(numbered, on=PLACE)
            .sort("_point", *_UP, maintain_order=True)
            .with_row_index("_row")
        )
        self._slots = valid.select(*_UP, "repeat").rows()
        points = len(places)
        self._own = _grouping(valid, points)
        self._simulated: Bools = np.zeros(points, dtype=np.bool_)
        self._simulated[self._own.group[valid["_simulated"].to_numpy()]] = True
        beside = valid.filter(pl.col("is_baseline")).select(*_PAIR, pl.col("_row").alias("_beside"))
        pairs = (
            valid.filter(~pl.col("is_baseline"))
            .select(*_PAIR, "_row", "_point")
            .join(beside, on=_PAIR, nulls_equal=True)
            .sort("_row")
        )
        self._paired = _grouping(pairs, points)
        self._pair_rows: Ints = pairs["_row"].to_numpy().astype(np.int64)
        self._beside: Ints = pairs["_beside"].to_numpy().astype(np.int64)
        self.estimates: dict[str, Column] = {}
        self.differences: dict[str, Column] = {}
        self.ratios: dict[str, Column] = {}
        dead = np.zeros(valid.height, dtype=np.bool_)
        for metric in metrics:
            values = valid[metric].to_numpy().astype(np.float64)
            errors = clock_errors(valid, metric)
            self.estimates[metric] = self._values(metric, values, errors)
            if pairs.height:
                self.differences[metric] = self._differences(metric, values, errors)
                if METRICS[metric].scale == "log":
                    self.ratios[metric] = self._differences(
                        metric, values, errors, logarithms=False
                    )
            if (nothing := METRICS[metric].nothing) is not None:
                dead |= values == nothing
        self.dead: Ints = np.bincount(self._own.group[dead], minlength=points)

    def _values(self, metric: str, values: Floats, errors: Floats) -> Column:
        rows = ~np.isnan(values)
        logarithmic = np.zeros(self._own.groups, dtype=np.bool_)
        if METRICS[metric].scale == "log":
            logarithmic = self._own.lowest(values, rows) > 0
        scaled = _logarithms(values, logarithmic[self._own.group])
        found = self._own.summaries(scaled, rows)
        bias = _of_each(self._own, _shift(values, errors, logarithmic[self._own.group]), rows)
        moved = _of_each(self._own, errors, rows)
        return self._column(metric, found, logarithmic, bias, moved=moved)

    def _differences(
        self, metric: str, values: Floats, errors: Floats, *, logarithms: bool = True
    ) -> Column:
        paired = self._paired
        own, beside = values[self._pair_rows], values[self._beside]
        rows = ~(np.isnan(own) | np.isnan(beside))
        logarithmic = relative = np.zeros(paired.groups, dtype=np.bool_)
        scaled = own - beside
        own_error, base_error = errors[self._pair_rows], errors[self._beside]
        shift = own_error + base_error
        if METRICS[metric].scale == "log":
            if logarithms:
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
        return self._column(metric, found, logarithmic, bias, relative=relative, units=units)

    def _column(
        self,
        metric: str,
        found: Summaries,
        logarithmic: Bools,
        bias: Floats,
        *,
        relative: Bools | None = None,
        units: Callable[[int], Mapping[Unit, float]] = _no_units,
        moved: Floats | None = None,
    ) -> Column:
        half = _quantiles(found.freedom, self._confidence) * found.error
        half[(found.repeats < FEWEST) | (found.error == 0)] = np.nan
        certain = ~(found.error > 0) & is_certain(metric, simulated=False)
        if is_certain(metric, simulated=True):
            certain |= self._simulated & (found.error == 0)
        half[certain] = 0.0
        if units is not _no_units:
            # An interval from nothing to everything tells nothing.
            half = np.where(np.isinf(bias), np.nan, half + bias)
        return Column(
            metric,
            found,
            logarithmic,
            np.zeros_like(logarithmic) if relative is None else relative,
            found.mean - half,
            found.mean + half,
            self._confidence,
            units,
            bias,
            np.zeros_like(bias) if moved is None else moved,
            certain,
        )

    def _units(self, point: int, scaled: Floats, rows: Bools) -> Mapping[Unit, float]:
        group = self._paired.group
        first, last = np.searchsorted(group, (point, point + 1))
        own: dict[Unit, list[float]] = {}
        ups = len({*self._paired.bring_up[first:last][rows[first:last]].tolist()})
        for at in range(first, last):
            if rows[at]:
                computer, block, up, repeat = self._slots[self._pair_rows[at]]
                unit = (computer, block, up, 0 if ups > 1 else repeat)
                own.setdefault(unit, []).append(float(scaled[at]))
        if len({unit[0] for unit in own}) > 1:
            return coarser(means(own), computers=True)
        return means(own)


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


_MOST_EXPONENT: Final = 700.0
"""e to more than this is not a float."""


def _back(logarithmic: bool, *, difference: bool) -> Callable[[float], float]:
    if not logarithmic:
        return float
    back = math.expm1 if difference else math.exp
    return lambda value: back(min(value, _MOST_EXPONENT))
