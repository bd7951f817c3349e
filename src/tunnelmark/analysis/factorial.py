"""What share of the scatter each factor of a study explains: factorial analysis of variance."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from tunnelmark.analysis.cells import Cell, Slot
from tunnelmark.analysis.contrasts import on_logarithms
from tunnelmark.analysis.strata import marked
from tunnelmark.analysis.testing import grown

_MOST_TERMS: Final = 300
"""Columns of the largest model that is fitted; beyond it interactions are left out."""


@dataclass(frozen=True)
class Effect:
    """One factor, or two together beyond what each does alone."""

    factors: tuple[str, ...]
    freedom: float
    f: float
    p: float
    partial_omega_squared: float
    """Share of what the other terms leave that this one explains, without the share that chance
    alone would explain (Olejnik and Algina 2003); 0.01 is little, 0.06 middling, 0.14 much (Cohen).
    """
    reach: float
    """From the lowest to the highest mean of its levels (of a pair: beyond what each does alone),
    as a ratio minus 1 where figures are logarithms, else in the metric's unit."""
    reported: bool = False
    """Whether it may be reported, of all that was looked at together: see ``explore``."""


@dataclass(frozen=True)
class Factorial:
    """Analysis of variance of one metric over all repeats."""

    metric: str
    workload: str
    effects: tuple[Effect, ...]
    residual_freedom: float
    repeats: int
    logarithmic: bool
    interactions: bool
    """Whether pairs of factors are in the model; they need every combination, and repeats."""


def factorial(cells: Sequence[Cell], metric: str) -> tuple[Factorial, ...]:
    """Analyse a metric by tunnel, link, device and whatever else varies, each workload on its own.

    Type II sums of squares: a factor's share is what it adds to all others, so repeats need not be
    equally many. Rates and times are analysed as logarithms. Where points were measured in several
    bring-ups their means are the figures; blocks of one link and device, which each measured the
    baseline, are a factor of their own that is not reported. A workload in which nothing varies, or
    whose points were measured once only, gives nothing.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        # Figures of two strata or environments are never pooled.
        kind = marked(cell.kinds["workload"], cell.stratum)
        what = ", ".join(part for part in (kind, cell.apart) if part)
        groups.setdefault(what, []).append(cell)
    found = (_factorial(own, metric, what) for what, own in groups.items())
    return tuple(one for one in found if one is not None)


def _factorial(cells: Sequence[Cell], metric: str, workload: str) -> Factorial | None:
    names = ("tunnel", "link", "device")
    params = dict.fromkeys(key for cell in cells for key in cell.params)
    figures = [(cell, slot, value) for cell in cells for slot, value in _independent(cell)]
    rows = [
        {**{n: cell.names[n] for n in names}, **{p: str(cell.params.get(p)) for p in params}}
        for cell, _, _ in figures
    ]
    values = [value for _, _, value in figures]
    varied = [n for n in (*names, *params) if len({row[n] for row in rows}) > 1]
    if not varied or len(values) < 3 or min(values) == max(values):  # noqa: PLR2004 - scatter
        return None
    logarithmic = on_logarithms(metric, values)
    table = pd.DataFrame({f"f{i}": [row[n] for row in rows] for i, n in enumerate(varied)})
    table["y"] = np.log(values) if logarithmic else np.asarray(values)
    blocks = _blocks(table, [(cell, slot[1]) for cell, slot, _ in figures])
    single = [f"C(f{i})" for i in range(len(varied))]
    pairs = [f"{a}:{b}" for a, b in combinations(single, 2)]
    for terms in (single + pairs, single):
        effects = _fitted(table, terms, dict(zip(single, varied, strict=True)), blocks)
        if effects is not None:
            found, freedom = effects
            if logarithmic:
                found = tuple(replace(e, reach=grown(e.reach)) for e in found)
            interactions = len(terms) > len(single)
            return Factorial(
                metric, workload, found, freedom, len(values), logarithmic, interactions
            )
    return None


def _independent(cell: Cell) -> list[tuple[Slot, float]]:
    """Return the mean of each bring-up, or the repeats where there was one in each block."""
    ups: dict[tuple[str, str, int], list[float]] = {}
    for slot, value in cell.figures.items():
        ups.setdefault(slot[:3], []).append(value)
    if len(ups) == len({block for _, block, _ in ups}):
        return list(cell.figures.items())
    return [((*up, 0), math.fsum(own) / len(own)) for up, own in ups.items()]


def _blocks(table: pd.DataFrame, of: Sequence[tuple[Cell, str]]) -> list[str]:
    """Add a column for each block but the first of a link and device; return their names."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for cell, block in of:
        places.setdefault((cell.names["link"], cell.names["device"]), {})[block] = None
    columns = []
    for number, block in enumerate(b for own in places.values() for b in list(own)[1:]):
        columns.append(f"b{number}")
        table[columns[-1]] = [float(own == block) for _, own in of]
    return columns


def _fitted(
    table: pd.DataFrame, terms: Sequence[str], names: Mapping[str, str], blocks: Sequence[str]
) -> tuple[tuple[Effect, ...], float] | None:
    """Return the effects; None where the model has no unique fit or leaves no scatter."""
    levels = [math.prod(table[part[2:-1]].nunique() for part in t.split(":")) for t in terms]
    if sum(levels) + len(blocks) > _MOST_TERMS:
        return None
    with warnings.catch_warnings():
        # Reported by a warning that differs between versions; the rank is looked at below.
        warnings.simplefilter("ignore")
        fit = ols(f"y ~ {' + '.join([*blocks, *terms])}", data=table).fit()
    full = np.linalg.matrix_rank(fit.model.exog) == fit.model.exog.shape[1]
    if not full or fit.df_resid < 1 or fit.mse_resid <= 1e-24 * float(table["y"].var()):
        return None
    result = anova_lm(fit, typ=2)
    count, scatter = len(table), float(fit.mse_resid)
    effects = []
    for term in terms:
        row = result.loc[term]
        freedom = float(row["df"])
        gain = float(row["sum_sq"]) - freedom * scatter
        omega = gain / (float(row["sum_sq"]) + (count - freedom) * scatter)
        effects.append(
            Effect(
                tuple(names[part] for part in term.split(":")),
                freedom,
                float(row["F"]),
                float(row["PR(>F)"]),
                max(0.0, omega),
                _reach(table, [part[2:-1] for part in term.split(":")]),
            )
        )
    return tuple(effects), float(fit.df_resid)


def _reach(table: pd.DataFrame, factors: Sequence[str]) -> float:
    means = table.groupby(list(factors))["y"].mean()
    if len(factors) > 1:
        alone = [table.groupby(factor)["y"].mean() for factor in factors]
        for level, one in enumerate(alone):
            means = means - one.reindex(means.index.get_level_values(level)).to_numpy()
    return float(means.max() - means.min())
