"""What a trial did second by second: the link's rates, the cores, the load. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunnelmark.probes.cpu import CpuSecond

MOST_SECONDS: Final = 3600
"""An hour of seconds is kept of a trial."""
WAYS: Final = ("forward", "reverse")
_DROPS: Final = ("queue_dropped", "lost")
COUNTED: Final = ("delivered", "delivered_bytes", *_DROPS)
"""What ``link_seconds`` reads of each direction."""


def link_seconds(
    reports: Sequence[tuple[int, Mapping[str, Mapping[str, Any]]]],
    start_ns: int,
    *,
    header_bytes: int,
) -> list[dict[str, float]]:
    """Return the rate of the link's IP packets and its drops between reports, by direction.

    ``reports`` are (time, counters by direction) in order; ``header_bytes`` is what the counters
    have of each frame that is not part of an IP packet. ``end_s`` counts from ``start_ns``. Reports
    that came at once, one asked for and one by itself, are one.
    """
    found: list[dict[str, float]] = []
    last: tuple[int, Mapping[str, Mapping[str, Any]]] | None = None
    for report in reports:
        if last is None:
            last = report
            continue
        (then_ns, then), (now_ns, now) = last, report
        if now_ns - then_ns < _LEAST_NS:
            continue
        span_s = (now_ns - then_ns) / 1e9
        second: dict[str, float] = {"end_s": (now_ns - start_ns) / 1e9}
        for way in WAYS:
            frames, octets, *drops = (int(now[way][key]) - int(then[way][key]) for key in COUNTED)
            second[f"wire_{way}_bit_s"] = (octets - header_bytes * frames) * 8 / span_s
            second |= {f"{name}_{way}": float(n) for name, n in zip(_DROPS, drops, strict=True)}
        found.append(second)
        last = report
    return found[:MOST_SECONDS]


def cpu_seconds(seconds: Sequence[CpuSecond]) -> list[dict[str, object]]:
    """Return the share of each core's time by what it did, and the load average."""
    return [
        {
            "end_s": second.end_s,
            "load_average": second.load_average,
            "cores": [
                {
                    name: getattr(core, name) / core.total if core.total else None
                    for name in ("user", "system", "softirq", "steal")
                }
                for core in second.cores
            ],
        }
        for second in seconds[:MOST_SECONDS]
    ]


_LEAST_NS: Final = 500_000_000
