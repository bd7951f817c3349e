"""Intervals for a mean, a median and a share; pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

_FEWEST_FOR_BOOTSTRAP: Final = 3
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


def mean_of_means(groups: Sequence[Sequence[float]], confidence: float) -> Interval:
    """Return the mean of the groups' means, each group counting the same whatever its size.

    The groups may scatter differently: degrees of freedom by Welch (1947) and Satterthwaite (1946).
    A group with one value gives no interval.
    """
    means = [math.fsum(group) / len(group) for group in groups]
    centre = math.fsum(means) / len(means)
    if any(len(group) < 2 for group in groups):  # noqa: PLR2004 - a variance needs two values
        return Interval(centre, None, None)
    parts = [
        math.fsum((value - mean) ** 2 for value in group) / (len(group) - 1) / len(group)
        for group, mean in zip(groups, means, strict=True)
    ]
    total = math.fsum(parts)
    if total == 0:
        return Interval(centre, centre, centre)
    # As shares of the whole: the squares of very small variances would be no floats any more.
    shares = [part / total for part in parts]
    freedom = 1 / math.fsum(s * s / (len(g) - 1) for s, g in zip(shares, groups, strict=True))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(total) / len(groups)
    return Interval(centre, centre - half, centre + half)


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
