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


def goodput_seconds(flows: Sequence[Flow], *, one_clock: bool) -> dict[str, list[float]]:
    """Return the payload delivered per whole second since the first packet left, in bit/s.

    ``forward`` is what came to the far end, ``reverse`` what came back, empty where nothing was
    answered. At most one hour; the last second is left out where it is not whole. Without
    ``one_clock`` the quickest packet of each flow is taken to need no time to the far end.
    """
    sent = [flow.sent_ns for flow in flows if len(flow.sent_ns)]
    if not sent:
        return {"forward": [], "reverse": []}
    start_ns = min(int(times.min()) for times in sent)
    end_ns = max(int(times.max()) for times in sent)
    seconds = min((end_ns - start_ns) // _SECOND_NS, MOST_SECONDS)
    asked = any(flow.answered.any() for flow in flows)
    return {
        "forward": _rates([_arrivals(flow, one_clock) for flow in flows], start_ns, seconds),
        "reverse": _rates([_returns(flow) for flow in flows], start_ns, seconds) if asked else [],
    }


def _arrivals(flow: Flow, one_clock: bool) -> tuple[_Numbers, _Numbers]:
    """Return when packets came to the far end, on the sender's clock, and their sizes."""
    times, sizes = _of(flow.arrived_ns, flow.size, flow.arrived)
    return times if one_clock else times - flow.quickest_ns, sizes


def _returns(flow: Flow) -> tuple[_Numbers, _Numbers]:
    return _of(flow.returned_ns, flow.size, flow.returned)


def _of(times: _Numbers, sizes: _Numbers, came: npt.NDArray[np.bool_]) -> tuple[_Numbers, _Numbers]:
    return (times, sizes) if came.all() else (times[came], sizes[came])


def _rates(came: Sequence[tuple[_Numbers, _Numbers]], start_ns: int, seconds: int) -> list[float]:
    octets = sum(
        (_octets(times, sizes, start_ns, seconds) for times, sizes in came),
        np.zeros(seconds, dtype=np.int64),
    )
    return [float(count) * 8 for count in octets]


def _octets(times: _Numbers, sizes: _Numbers, start_ns: int, seconds: int) -> _Numbers:
    """Return the sum of the sizes by second."""
    if not bool((times[1:] >= times[:-1]).all()):
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
    at = np.searchsorted(times, start_ns + _SECOND_NS * np.arange(seconds + 1))
    return np.array([sizes[low:high].sum() for low, high in pairwise(at)], dtype=np.int64)
