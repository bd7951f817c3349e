"""Says where goodput is above what the line carries, and why; pure."""

from collections.abc import Iterable

from tunnelmark.analysis.estimates import PointEstimates

_RATIO = "compression_ratio"


def compressed(points: Iterable[PointEstimates], place: str) -> list[str]:
    """Return a sentence for each point whose packets surely carried more payload than they have.

    Nothing but compression does that: a byte on the link carries less than one byte of payload
    otherwise, by the headers.
    """
    return [
        f"{point.tunnel} over {place}, {point.workload}: each byte on the link carried "
        f"{ratio.value:.1f} bytes of payload, so the tunnel compressed it; its goodput shows how "
        "well this payload compresses, not how much the line carries."
        for point in points
        if (ratio := point.estimates.get(_RATIO)) is not None
        and ratio.low is not None
        and ratio.low > 1
    ]
