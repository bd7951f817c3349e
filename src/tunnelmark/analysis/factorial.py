"""What share of the scatter each factor of a study explains: factorial analysis of variance."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from tunnelmark.analysis.cells import Cell
from tunnelmark.analysis.contrasts import on_logarithms

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
    equally many. Rates and times are analysed as logarithms. A workload in which nothing varies, or
    whose points were measured once only, gives nothing.
    """
    kinds = dict.fromkeys(cell.kinds["workload"] for cell in cells)
    found = (
        _factorial([c for c in cells if c.kinds["workload"] == kind], metric, kind)
        for kind in kinds
    )
    return tuple(one for one in found if one is not None)


def _factorial(cells: Sequence[Cell], metric: str, workload: str) -> Factorial | None:
    names = ("tunnel", "link", "device")
    params = dict.fromkeys(key for cell in cells for key in cell.params)
    rows = [
        {**{n: cell.names[n] for n in names}, **{p: str(cell.params.get(p)) for p in params}}
        for cell in cells
        for _ in cell.figures
    ]
    values = [value for cell in cells for value in cell.figures.values()]
    varied = [n for n in (*names, *params) if len({row[n] for row in rows}) > 1]
    if not varied or len(values) < 3 or min(values) == max(values):  # noqa: PLR2004 - scatter
        return None
    logarithmic = on_logarithms(metric, values)
    table = pd.DataFrame({f"f{i}": [row[n] for row in rows] for i, n in enumerate(varied)})
    table["y"] = np.log(values) if logarithmic else np.asarray(values)
    single = [f"C(f{i})" for i in range(len(varied))]
    pairs = [f"{a}:{b}" for a, b in combinations(single, 2)]
    for terms in (single + pairs, single):
        effects = _fitted(table, terms, dict(zip(single, varied, strict=True)))
        if effects is not None:
            found, freedom = effects
            interactions = len(terms) > len(single)
            return Factorial(
                metric, workload, found, freedom, len(values), logarithmic, interactions
            )
    return None


def _fitted(
    table: pd.DataFrame, terms: Sequence[str], names: Mapping[str, str]
) -> tuple[tuple[Effect, ...], float] | None:
    """Return the effects; None where the model has no unique fit or leaves no scatter."""
    levels = [math.prod(table[part[2:-1]].nunique() for part in t.split(":")) for t in terms]
    if sum(levels) > _MOST_TERMS:
        return None
    with warnings.catch_warnings():
        # Told by a warning that differs between versions; the rank is looked at below.
        warnings.simplefilter("ignore")
        fit = ols(f"y ~ {' + '.join(terms)}", data=table).fit()
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
            )
        )
    return tuple(effects), float(fit.df_resid)
