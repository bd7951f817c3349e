"""Says whose packets went over the link in fragments, where a capture counted them; pure."""

from collections.abc import Iterable
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.report.names import names
from tunnelmark.report.show import figure

_RATIO: Final = "wire_fragments_ratio"
_WORTH: Final = 0.01
"""A smaller share is that of a few long packets among many, and costs nothing."""


def fragmented(points: Iterable[PointEstimates], where: str) -> list[str]:
    """Return one sentence for the points of one workload, or none where nothing was in fragments.

    Of a tunnel with several points the largest share counts; what surely sent none is named too,
    since a setting that avoids fragments is what the reader looks for.
    """
    most: dict[str, PointEstimates] = {}
    for point in points:
        if _RATIO in point.estimates:
            known = most.setdefault(point.tunnel, point)
            most[point.tunnel] = max(known, point, key=_share)
    sending = sorted((p for p in most.values() if _share(p) >= _WORTH), key=_share, reverse=True)
    if not sending:
        return []
    said = [f"{figure(p.estimates[_RATIO])} % of {p.tunnel}" for p in sending]
    none = [p.tunnel for p in most.values() if not _share(p) and not p.is_baseline]
    rest = f"; none of {names(none)}" if none else ""
    return [f"{where}: of the packets on the link these were fragments: {names(said)}{rest}."]


def _share(point: PointEstimates) -> float:
    return point.estimates[_RATIO].value
