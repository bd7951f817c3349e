"""Goodput of packet streams second by second, from the record of every packet."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tunnelmark.engine.records import Flow

_Numbers = npt.NDArray[np.int64]

MOST_SECONDS: Final = 3600
_SECOND_NS: Final = 10**9


def goodput_seconds(flows: Sequence[Flow]) -> dict[str, list[float]]:
    """Return the payload delivered per whole second since the first packet left, in bit/s.

    ``forward`` is what came to the far end, ``reverse`` what came back, empty where nothing was
    answered. At most one hour; the last second is left out where it is not whole.
    """
    sent = [flow.sent_ns for flow in flows if len(flow.sent_ns)]
    if not sent:
        return {"forward": [], "reverse": []}
    start_ns = min(int(times.min()) for times in sent)
    end_ns = max(int(times.max()) for times in sent)
    seconds = min((end_ns - start_ns) // _SECOND_NS, MOST_SECONDS)
    asked = any(flow.answered.any() for flow in flows)
    return {
        "forward": _rates(flows, start_ns, seconds, returned=False),
        "reverse": _rates(flows, start_ns, seconds, returned=True) if asked else [],
    }


def _rates(flows: Sequence[Flow], start_ns: int, seconds: int, *, returned: bool) -> list[float]:
    octets = np.zeros(seconds, dtype=np.int64)
    for flow in flows:
        times, came = (
            (flow.returned_ns, flow.returned) if returned else (flow.arrived_ns, flow.arrived)
        )
        sizes = flow.size
        if not came.all():
            times, sizes = times[came], sizes[came]
        octets += _octets(times, sizes, start_ns, seconds)
    return [float(count) * 8 for count in octets]


def _octets(times: _Numbers, sizes: _Numbers, start_ns: int, seconds: int) -> _Numbers:
    """Return the sum of the sizes by second."""
    if not bool((times[1:] >= times[:-1]).all()):
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
    at = np.searchsorted(times, start_ns + _SECOND_NS * np.arange(seconds + 1))
    return np.array([sizes[low:high].sum() for low, high in pairwise(at)], dtype=np.int64)
