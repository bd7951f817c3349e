"""Distributions of delay from the record of every packet."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST_STEPS = 400


def ecdf(
    values_ns: Sequence[npt.NDArray[np.int64]], packets: int
) -> tuple[list[float], list[float]]:
    """Return (delay in ms, share of ``packets`` at or below it) of pooled delays.

    Those without a delay count too: where some were lost the last share is below 1. At most
    ``MOST_STEPS`` points: the quantiles at even shares, the smallest and the largest, so a picture
    is the same whatever the number of packets.
    """
    pooled = np.sort(np.concatenate(values_ns)) if values_ns else np.empty(0, dtype=np.int64)
    if len(pooled) == 0:
        return [], []
    count = min(MOST_STEPS, len(pooled))
    places = np.unique(np.linspace(0, len(pooled) - 1, count).round().astype(np.int64))
    return (
        [float(v) for v in pooled[places] / 1e6],
        [float(v) for v in (places + 1) / packets],
    )
