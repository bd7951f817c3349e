"""Which of many differences can be told without mistaking chance for an effect."""

import math
from collections.abc import Sequence

from scipy import stats

from tunnelmark.analysis.estimates import Estimate, PointEstimates

Told = tuple[PointEstimates, str, Estimate]
"""A point, a metric, and its difference to the baseline there."""


def told(points: Sequence[PointEstimates], metrics: Sequence[str]) -> list[Told]:
    """Return the differences that may be told of some points, all of them looked at together."""
    found = [(p, m, d) for p in points for m in metrics if (d := p.differences.get(m)) is not None]
    clear = discoveries([difference for _, _, difference in found])
    return [one for one, sure in zip(found, clear, strict=True) if sure]


def discoveries(differences: Sequence[Estimate | None]) -> list[bool]:
    """Say of each difference whether it may be told, so that few of those told are false.

    Of forty intervals of 95 % two exclude 0 by chance alone. The procedure of Benjamini and
    Hochberg (1995) holds the expected share of false ones among those told to 1 - confidence, also
    for figures that go together, as goodput and the time of a transfer do (positive dependence,
    Benjamini and Yekutieli 2001). All are to have one confidence; None is never told.
    """
    tested = [(i, d, p) for i, d in enumerate(differences) if d and (p := p_value(d)) is not None]
    clear = [False] * len(differences)
    if tested:
        adjusted = stats.false_discovery_control([p for _, _, p in tested], method="bh")
        for (i, one, _), p in zip(tested, adjusted, strict=True):
            clear[i] = bool(p <= 1 - one.confidence)
    return clear


def p_value(difference: Estimate) -> float | None:
    """Return the two-sided p of no difference, by the test that the interval belongs to.

    None where there is no interval of Student's t.
    """
    if difference.low is None or difference.high is None:
        return None
    if difference.method not in {"t", "t on logarithms"}:
        return None
    logarithmic = difference.method == "t on logarithms"
    low, centre, high = (
        math.log1p(value) if logarithmic else value
        for value in (difference.low, difference.value, difference.high)
    )
    freedom = difference.n - 1
    error = (high - low) / 2 / float(stats.t.ppf((1 + difference.confidence) / 2, freedom))
    if error == 0:
        # The same in every repeat, as where a tunnel loses all that does not fit: no chance in it.
        return 1.0 if centre == 0 else 0.0
    return float(2 * stats.t.sf(abs(centre) / error, freedom))
