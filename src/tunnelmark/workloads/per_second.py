"""Goodput of packet streams second by second, from the record of every packet."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tunnelmark.engine.records import Flow

MOST_SECONDS: Final = 3600
_SECOND_NS: Final = 10**9


def goodput_seconds(flows: Sequence[Flow]) -> dict[str, list[float]]:
    """Return the payload delivered per whole second since the first packet left, in bit/s.

    ``forward`` is what came to the far end, ``reverse`` what came back, empty where nothing was
    answered. The last, broken second is
    left out, for its rate would be that of a part; all together are at most an hour.
    """
    sent = [flow.sent_ns for flow in flows if len(flow.sent_ns)]
    if not sent:
        return {"forward": [], "reverse": []}
    start_ns = min(int(times.min()) for times in sent)
    end_ns = max(int(times.max()) for times in sent)
    seconds = min((end_ns - start_ns) // _SECOND_NS, MOST_SECONDS)
    came = [(flow.arrived_ns[flow.arrived], flow.size[flow.arrived]) for flow in flows]
    back = [(flow.returned_ns[flow.returned], flow.size[flow.returned]) for flow in flows]
    asked = any(flow.answered.any() for flow in flows)
    return {
        "forward": _rates(came, start_ns, seconds),
        "reverse": _rates(back, start_ns, seconds) if asked else [],
    }


def _rates(
    arrivals: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    start_ns: int,
    seconds: int,
) -> list[float]:
    times = np.concatenate([times for times, _ in arrivals])
    sizes = np.concatenate([sizes for _, sizes in arrivals])
    places = (times - start_ns) // _SECOND_NS
    inside = (places >= 0) & (places < seconds)
    octets = np.bincount(places[inside], weights=sizes[inside], minlength=seconds)
    return [float(count) * 8 for count in octets]
