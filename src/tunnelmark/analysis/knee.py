"""Where a curve bends: a line of two segments, with an interval for the place of the bend."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

_CANDIDATES: Final = 100
_SIMULATED: Final = 499
_FEWEST_LEVELS: Final = 5
_DOUBTFUL: Final = 0.2
"""No bend whatever else: the second simulation is spared."""
_MISFIT: Final = 0.01
"""A fit that chance makes worse less often than this is no fit."""
_PARAMETERS: Final = 4
"""Level, two slopes and the place of the bend."""
_Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Knee:
    """A bend, such as where throughput no longer follows the load."""

    at: float
    low: float
    high: float
    slope_before: float
    """Change of the figure per unit along."""
    slope_after: float
    p: float
    """How likely a straight line, or a smooth curve, with the same scatter looks as bent as this:
    the larger of the two."""
    points: int
    matters: bool
    """Whether the bend is relevant: it leaves the straight line by that much, and two
    segments are what the repeats show, no other curve."""
    reported: bool = False
    """Whether it may be reported, of all that was looked at together: see ``explore``."""


def knee(
    along: Sequence[float],
    figures: Sequence[float],
    *,
    confidence: float,
    worth: float,
    seed: int = 1,
) -> Knee | None:
    """Fit two joined segments by least squares; None where there is too little to fit them to.

    The place of the bend is searched over the range of ``along`` without its ends; its interval
    holds all places whose fit is not significantly worse (profile likelihood, F with one degree of
    freedom). Whether there is a bend at all is a Monte-Carlo test (Barnard 1963) with straight
    lines of the same levels: exact for normal scatter, which no F table is, as the place was
    searched for. A second one asks the same of the cubic that fits best, which has as many
    parameters, with the scatter of the repeats (parametric bootstrap, Davison and Hinkley 1997,
    section 4.4).

    ``worth`` is the smallest relevant difference, in the unit of the figures. Needs five
    different levels, six points, and some scatter.
    """
    x, y = np.asarray(along, dtype=np.float64), np.asarray(figures, dtype=np.float64)
    levels = np.unique(x)
    freedom = len(x) - _PARAMETERS
    if len(levels) < _FEWEST_LEVELS or freedom < 2:  # noqa: PLR2004 - scatter about the fit
        return None
    places = np.linspace(levels[1], levels[-2], _CANDIDATES)
    step = float(places[1] - places[0])
    bases = [_basis(x, place) for place in places]
    left = _left(bases, y[:, np.newaxis])[:, 0]
    best = int(np.argmin(left))
    straight = _left([_line(x)], y[:, np.newaxis])[0, 0]
    # What rounding leaves of a fit without scatter.
    if straight <= 1e-18 * max(1.0, float(y @ y)):
        return None
    least = max(float(left[best]), 1e-24 * float(straight))
    worst = least * (1 + float(stats.f.ppf(confidence, 1, freedom)) / freedom)
    good = places[left <= worst]
    kept = _fitted(bases[best], y)
    straight_p = _p_of_bend(x, bases, straight / least, seed)
    slopes = np.linalg.lstsq(_columns(x, places[best]), y, rcond=None)[0]
    return Knee(
        at=float(places[best]),
        # Between two places that were tried nothing is known: one step further on either side.
        low=max(float(levels[0]), float(good.min() - step)),
        high=min(float(levels[-1]), float(good.max() + step)),
        slope_before=float(slopes[1]),
        slope_after=float(slopes[1] + slopes[2]),
        p=straight_p
        if straight_p > _DOUBTFUL
        else max(straight_p, _p_of_curve(x, y, bases, least, seed)),
        points=len(x),
        matters=bool(np.max(np.abs(kept - _fitted(_line(x), y))) >= worth)
        and _is_shape(x, y, kept, worth),
    )


def _is_shape(x: _Array, y: _Array, kept: _Array, worth: float) -> bool:
    """Say whether two segments are all that the levels show: the F test for lack of fit.

    Draper and Smith, Applied Regression Analysis, section 2.1. A misfit that is not relevant
    does not count, however certain.
    """
    levels, at, count = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(at, y) / count
    off = (means - (np.bincount(at, kept) / count))[at]
    if np.max(np.abs(off)) < worth:
        return True
    pure = float(((y - means[at]) ** 2).sum())
    lacking, free = len(levels) - _PARAMETERS, len(x) - len(levels)
    if free < 1:
        return False
    if lacking < 1:
        return True
    if pure <= 0:
        return False
    f = float(off @ off) / lacking / (pure / free)
    return float(stats.f.sf(f, lacking, free)) > _MISFIT


def _p_of_curve(x: _Array, y: _Array, bases: Sequence[_Array], least: float, seed: int) -> float:
    """Return how often a cubic with the scatter of the repeats gains as much by two segments."""
    curve = _curve(x)
    ratio = float(_left([curve], y[:, np.newaxis])[0, 0]) / least
    if ratio <= 1:
        return 1.0
    levels, at, count = np.unique(x, return_inverse=True, return_counts=True)
    pure = y - (np.bincount(at, y) / count)[at]
    free = len(x) - len(levels)
    scatter = math.sqrt(float(pure @ pure) / free) if free else math.sqrt(least / len(x))
    noise = np.random.default_rng(seed).standard_normal((len(x), _SIMULATED))
    figures = _fitted(curve, y)[:, np.newaxis] + scatter * noise
    smooth = _left([curve], figures)[0]
    bent = np.maximum(_left(bases, figures).min(axis=0), 1e-300)
    return float((1 + np.count_nonzero(smooth / bent >= ratio)) / (_SIMULATED + 1))


def _fitted(basis: _Array, y: _Array) -> _Array:
    # Every basis has the constant in it, and its columns are orthogonal.
    return np.asarray(basis @ (basis.T @ y))


def _p_of_bend(x: _Array, bases: Sequence[_Array], ratio: float, seed: int) -> float:
    """Return how often a straight line with normal scatter gains as much by two segments."""
    noise = np.random.default_rng(seed).standard_normal((len(x), _SIMULATED))
    straight = _left([_line(x)], noise)[0]
    bent = _left(bases, noise).min(axis=0)
    return float((1 + np.count_nonzero(straight / bent >= ratio)) / (_SIMULATED + 1))


def _columns(x: _Array, place: float) -> _Array:
    return np.column_stack([np.ones_like(x), x, np.maximum(0.0, x - place)])


def _basis(x: _Array, place: float) -> _Array:
    # Scaled before it is made orthogonal: loads in bit/s and the constant 1 are far apart.
    scaled = (x - x.min()) / (x.max() - x.min())
    at = (place - x.min()) / (x.max() - x.min())
    return np.asarray(np.linalg.qr(_columns(scaled, at))[0])


def _line(x: _Array) -> _Array:
    scaled = (x - x.min()) / (x.max() - x.min())
    return np.asarray(np.linalg.qr(np.column_stack([np.ones_like(x), scaled]))[0])


def _curve(x: _Array) -> _Array:
    scaled = (x - x.min()) / (x.max() - x.min())
    return np.asarray(
        np.linalg.qr(np.column_stack([np.ones_like(x), scaled, scaled**2, scaled**3]))[0]
    )


def _left(bases: Sequence[_Array], y: _Array) -> _Array:
    """Return the squares that each fit (row) leaves of each series (column)."""
    centred = y - y.mean(axis=0)
    whole = (centred**2).sum(axis=0)
    return np.array([np.maximum(0.0, whole - ((b.T @ centred) ** 2).sum(axis=0)) for b in bases])


@dataclass(frozen=True)
class Correlation:
    """How far two figures rise together, by their ranks."""

    rho: float
    low: float
    high: float
    points: int
    p: float
    reported: bool = False
    """Whether it may be reported, of all that was looked at together: see ``explore``."""


def rank_correlation(
    one: Sequence[float], other: Sequence[float], *, confidence: float
) -> Correlation | None:
    """Return Spearman's rho with its interval; None for fewer than five points or a constant.

    By ranks, since CPU and loss are bounded and rise together in no straight line. The interval is
    Fisher's z with the variance of Bonett and Wright, Psychometrika 65 (2000).
    """
    count = len(one)
    if count < _FEWEST_LEVELS or min(one) == max(one) or min(other) == max(other):
        return None
    rho = float(stats.spearmanr(one, other).statistic)
    # No z of 1: there the interval is that of the next smaller value, two neighbours swapped.
    most = 1 - 12 / (count * (count**2 - 1))
    inner = math.copysign(min(abs(rho), most), rho)
    error = math.sqrt((1 + inner**2 / 2) / (count - 3))
    half = float(stats.norm.ppf((1 + confidence) / 2)) * error
    centre = math.atanh(inner)
    # By chance all orders of one of them are equally likely. Those that pair the same figures look
    # the same, and what is perfect turned round is perfect too.
    same = _orders(one) + _orders(other) - _orders(list(zip(one, other, strict=True)))
    p = 2 * math.exp(same - math.lgamma(count + 1))
    if inner == rho:
        p = max(p, float(2 * stats.norm.sf(abs(centre) / error)))
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    if inner != rho:
        low, high = (low, 1.0) if rho > 0 else (-1.0, high)
    return Correlation(rho, low, high, count, min(1.0, p))


def _orders(values: Sequence[Hashable]) -> float:
    """Return the logarithm of how many orders of some values look the same."""
    return math.fsum(math.lgamma(times + 1) for times in Counter(values).values())
