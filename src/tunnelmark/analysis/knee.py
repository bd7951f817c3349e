"""Where a curve bends: a line of two segments, with an interval for the place of the bend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

_CANDIDATES: Final = 100
_SIMULATED: Final = 499
_FEWEST_LEVELS: Final = 5
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
    """How likely a straight line with the same scatter looks as bent as this."""
    points: int


def knee(
    along: Sequence[float], figures: Sequence[float], *, confidence: float, seed: int = 1
) -> Knee | None:
    """Fit two joined segments by least squares; None where there is too little to fit them to.

    The place of the bend is searched over the range of ``along`` without its ends; its interval
    holds all places whose fit is not significantly worse (profile likelihood, F with one degree of
    freedom). Whether there is a bend at all is a Monte-Carlo test (Barnard 1963) with straight
    lines of the same levels: exact for normal scatter, which no F table is, as the place was
    searched for. Needs five different levels, six points, and some scatter.
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
    slopes = np.linalg.lstsq(_columns(x, places[best]), y, rcond=None)[0]
    return Knee(
        at=float(places[best]),
        # Between two places that were tried nothing is known: one step further on either side.
        low=max(float(levels[0]), float(good.min() - step)),
        high=min(float(levels[-1]), float(good.max() + step)),
        slope_before=float(slopes[1]),
        slope_after=float(slopes[1] + slopes[2]),
        p=_p_of_bend(x, bases, straight / least, seed),
        points=len(x),
    )


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
    if abs(rho) >= 1 - 1e-12:
        # No z of 1: the interval that the nearest smaller value would have.
        rho = math.copysign(1 - 1e-12, rho)
    half = float(stats.norm.ppf((1 + confidence) / 2)) * math.sqrt((1 + rho**2 / 2) / (count - 3))
    centre = math.atanh(rho)
    return Correlation(rho, math.tanh(centre - half), math.tanh(centre + half), count)
