"""Makes points with known estimates and differences, for tests of what a report says of them."""

import math
from collections.abc import Mapping

from tunnelmark.analysis.estimate import Estimate, Method
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.testing import spread
from tunnelmark.model.metrics import METRICS

Params = Mapping[str, str | int | float | bool]


def point(
    tunnel: str,
    params: Params,
    figures: Mapping[str, tuple[float, float]],
    *,
    kind: str = "tcp_bulk",
    device: str = "host",
    changed: float | None = None,
) -> PointEstimates:
    """Return a point with value and half interval of each metric."""
    made = {
        name: Estimate(name, 3, value, value - half, value + half, 0.95, "t")
        for name, (value, half) in figures.items()
    }
    differences = {}
    if changed is not None:
        differences = {
            name: _difference(name, changed, half) for name, (_, half) in figures.items()
        }
    name = f"{kind} {' '.join(map(str, params.values()))}"
    return PointEstimates(
        f"{tunnel}{name}{device}",
        name,
        tunnel,
        tunnel,
        tunnel == "none",
        "wan",
        device,
        name,
        kind,
        params,
        "total",
        3,
        0,
        made,
        differences,
    )


def _difference(name: str, changed: float, half: float) -> Estimate:
    """Return a difference of five repeats, of which half an interval is a share of what it is."""
    logarithmic = METRICS[name].scale == "log"
    centre = math.log1p(changed) if logarithmic else changed
    step = half / 1e7
    units = {("", "b1", 1, n): centre + step * (n - 2) for n in range(5)}
    own = spread(list(units.values()))
    method: Method = "t on logarithms" if logarithmic else "t"
    low, high = changed - 0.01, changed + 0.01
    return Estimate(
        name,
        *(5, changed, low, high, 0.95, method),
        spread=own,
        logarithmic=logarithmic,
        units=units,
    )
