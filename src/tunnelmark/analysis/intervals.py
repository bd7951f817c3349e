"""Intervals for a mean, a median, a share and a series in time; pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

_FEWEST_FOR_BOOTSTRAP: Final = 3
_BATCHES: Final = 10
"""Fewer leave few degrees of freedom, more make batches so short that they depend on each other
(Schmeiser, Batch Size Effects in the Analysis of Simulation Output, 1982)."""
_RESAMPLES: Final = 9999


@dataclass(frozen=True)
class Interval:
    """A value with the bounds that hold the truth in the given share of all experiments."""

    value: float
    low: float | None
    """None, like ``high``: there are too few values for an interval."""
    high: float | None


def mean_t(values: Sequence[float], confidence: float) -> Interval:
    """Return the mean with Student's interval; exact for normal values, good for means of many."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:  # noqa: PLR2004 - an interval needs two values
        return Interval(mean, None, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half)


def mean_bootstrap(values: Sequence[float], confidence: float, *, seed: int) -> Interval:
    """Return the mean with Efron's BCa interval, for values that are far from normal.

    Needs three values; few values make it too narrow, so it is no substitute for repeats.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < _FEWEST_FOR_BOOTSTRAP:
        return Interval(mean, None, None)
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    found = stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def mean_in_time(series: Sequence[float], confidence: float) -> Interval:
    """Return the mean of values in order of time, such as goodput by the second, with its interval.

    Neighbours are alike (a congestion window does not jump), so each tells less than a repeat
    would: a plain interval is far too narrow. The means of ten batches of equal length are nearly
    independent if a batch is much longer than what lasts (Law and Kelton, Simulation Modeling and
    Analysis, section 9.5.3). The first values that fill no batch are left out of the interval, not
    of the mean; fewer than twenty values give no interval.
    """
    mean = math.fsum(series) / len(series)
    length = len(series) // _BATCHES
    if length < 2:  # noqa: PLR2004 - batches of one value are no batches
        return Interval(mean, None, None)
    start = len(series) - length * _BATCHES
    means = [
        math.fsum(series[at : at + length]) / length for at in range(start, len(series), length)
    ]
    found = mean_t(means, confidence)
    half = None if found.high is None else found.high - found.value
    return Interval(
        mean, None if half is None else mean - half, None if half is None else mean + half
    )


def median_exact(values: Sequence[float], confidence: float) -> Interval:
    """Return the median with the interval between two order statistics, exact for any law.

    The number of values below the median is binomial (Conover, Practical Nonparametric Statistics,
    section 3.2). With few values even the whole range is not wide enough: no interval then.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    # The largest k such that [k-th smallest, k-th largest] is missed rarely enough on each side.
    cut = int(stats.binom.ppf((1 - confidence) / 2, count, 0.5))
    if stats.binom.cdf(cut, count, 0.5) > (1 - confidence) / 2:
        cut -= 1
    if cut < 0:
        return Interval(median, None, None)
    return Interval(median, ordered[cut], ordered[count - 1 - cut])


def share_exact(hits: int, of: int, confidence: float) -> Interval:
    """Return a share with the exact interval of Clopper and Pearson (1934).

    Never narrower than it says: 0 lost of 300 packets at 95 % is a loss of 0 to 1.22 %.
    """
    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"hits are {hits}, must be 0 to {of} of at least 1")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(stats.beta.ppf(1 - tail, hits + 1, of - hits))
    return Interval(hits / of, low, high)
