"""Figures of set-ups of a tunnel or of clients of a gateway, and why some failed; pure."""

import math
from collections.abc import Sequence
from typing import Final

from tunnelmark.model.set_up import Sent, SetUp
from tunnelmark.model.validity import Check
from tunnelmark.workloads.quantiles import needed, too_few

LONGEST_LIMIT_NS: Final = 20 * 10**9
"""After it OpenVPN gives a handshake up by itself, as drivers start it."""
_MEDIAN: Final = 50
_TAIL: Final = 95
_REPORTED_REASONS: Final = 5


def figures(found: Sequence[SetUp]) -> dict[str, float | None]:
    """Return the metrics of some set-ups, of one at least."""
    times = sorted(math.inf if one.took_ns is None else float(one.took_ns) for one in found)
    came_up = [one for one in found if one.took_ns is not None]
    sent = {
        "forward": [one.forward for one in came_up],
        "reverse": [one.reverse for one in came_up],
    }
    return {
        "setup_p50_ns": _percentile(times, _MEDIAN),
        "setup_p95_ns": _percentile(times, _TAIL) if len(times) >= needed(_TAIL) else None,
        "setup_max_ns": _percentile(times, 100),
        "setup_failed_ratio": 1 - len(came_up) / len(found),
        **{f"handshake_bytes_{way}": _mean(ends, "octets") for way, ends in sent.items()},
        **{f"handshake_packets_{way}": _mean(ends, "packets") for way, ends in sent.items()},
    }


def withheld(metric: str, key: str, count: int) -> str | None:
    """Return that ``count`` set-ups, the value of ``key``, are too few for a metric, or None."""
    tails = {"setup_p95_ns": (_TAIL, f"{key} is {count}", count)}
    return too_few(metric, tails, remedy="repeat more often")


def failures(found: Sequence[SetUp], limit_ns: int) -> Check:
    """Say how many failed and why; the trial is none the worse for it."""
    reasons = [one.reason for one in found if one.took_ns is None]
    words = f"{len(reasons)} of {len(found)} set-ups failed within {limit_ns / 1e9:g} s"
    reported = list(dict.fromkeys(reasons))
    more = (
        f"; and {len(reported) - _REPORTED_REASONS} other reasons"
        if len(reported) > _REPORTED_REASONS
        else ""
    )
    because = f": {'; '.join(reported[:_REPORTED_REASONS])}{more}" if reported else ""
    return Check("set_ups", ok=True, message=words + because, value=float(len(reasons)), unit="1")


def _percentile(times: Sequence[float], percent: float) -> float | None:
    """Return a percentile of sorted times by linear interpolation; None where it is infinite."""
    place = (len(times) - 1) * percent / 100
    below, above = times[math.floor(place)], times[math.ceil(place)]
    if math.isinf(above):
        return None
    return below + (above - below) * (place - math.floor(place))


def _mean(ends: Sequence[Sent | None], what: str) -> float | None:
    """Return the mean of a count; None where a set-up was not counted, or none came up."""
    known = [float(getattr(end, what)) for end in ends if end is not None]
    return sum(known) / len(known) if known and len(known) == len(ends) else None
