"""Figures as text: unit by metric, digits by the interval."""

import math
from typing import Final

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.testing import FEWEST
from tunnelmark.analysis.units import Unit, unit
from tunnelmark.model.metrics import METRICS

_MOST_DECIMALS: Final = 4
NOTHING: Final = "-"
"""Stands where nothing was measured: missing is not zero."""
BROKEN: Final = "broken"
"""Stands where nothing came through in any valid trial."""


def digits(value: float, half_width: float | None) -> int:
    """Return decimals such that the interval has two significant digits, at most four."""
    # An interval far below a thousandth of the value says nothing more by further digits.
    scale = max(half_width or abs(value) / 100, abs(value) / 10_000)
    if not scale or not math.isfinite(scale):
        return 0
    return max(0, min(_MOST_DECIMALS, 1 - math.floor(math.log10(scale))))


def figure(estimate: Estimate | None) -> str:
    """Return ``7.850 [7.838, 7.862]``, ``7.85 (n=1)`` or a dash where nothing was measured.

    An interval on logarithms has no half that could be added and taken away: both ends are shown.
    Others are ``3.1 ±0.4``; repeats that are all alike have the figure alone.
    """
    if estimate is None:
        return NOTHING
    factor = unit(estimate.metric).factor
    value = estimate.value * factor
    if estimate.low is None or estimate.high is None:
        text = f"{value:.{digits(value, None)}f}"
        # Many that are all alike have no interval, and no lack of repeats either.
        return text if estimate.n >= FEWEST else f"{text} (n={estimate.n})"
    if estimate.low == estimate.high:
        return f"{value:.{digits(value, None)}f}"
    half = (estimate.high - estimate.low) / 2 * factor
    places = digits(value, half)
    if estimate.method == "t on logarithms":
        ends = (f"{end * factor:.{places}f}" for end in (estimate.low, estimate.high))
        return f"{value:.{places}f} [{', '.join(ends)}]"
    return f"{value:.{places}f} ±{half:.{places}f}"


def cell(point: PointEstimates, metric: str) -> str:
    """Return a point's figure; what never carried anything has no delay, and is not a gap."""
    found = point.estimates.get(metric)
    return BROKEN if found is None and point.broken else figure(found)


def change(estimate: Estimate | None) -> str:
    """Return a difference to the baseline as ``+1.2 % [+0.9, +1.5]`` or in the metric's unit."""
    if estimate is None:
        return NOTHING
    bounds = (estimate.low, estimate.high)
    found = difference(estimate.metric, estimate.value, *bounds)
    return found if None not in bounds or estimate.n >= FEWEST else f"{found} (n={estimate.n})"


def difference(metric: str, value: float, low: float | None, high: float | None) -> str:
    """Return a ratio minus 1, or a difference in the metric's stored unit, with its interval."""
    relative = METRICS[metric].scale == "log"
    shown = Unit(100.0, "%") if relative else unit(metric)
    if not relative and shown.name == "%":
        shown = Unit(100.0, "points")
    if math.isinf(value):
        return "infinite (the other is 0)"
    value *= shown.factor
    # Finer than a hundredth of a percent or a point nothing is relevant.
    most = 2 if shown.name in {"%", "points"} else _MOST_DECIMALS
    if low is None or high is None:
        places = min(most, digits(value, None))
        return f"{value:+z.{places}f} {shown.name}".rstrip()
    low, high = low * shown.factor, high * shown.factor
    half = (high - low) / 2 if math.isfinite(high) else value - low
    places = min(most, digits(value, half))
    end = f"{high:+z.{places}f}" if math.isfinite(high) else "no upper bound"
    return f"{value:+z.{places}f} {shown.name} [{low:+z.{places}f}, {end}]".replace("  ", " ")


def worth(metric: str) -> str:
    """Return the smallest difference of a metric that is relevant, ``1 %``."""
    known = METRICS[metric]
    if known.scale == "log":
        return f"{100 * known.worth_telling:g} %"
    shown = unit(metric)
    name = "points" if shown.name == "%" else shown.name
    return f"{known.worth_telling * shown.factor:g} {name}".rstrip()


def shown_duration(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
