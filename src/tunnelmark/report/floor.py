"""What the lab itself adds to a round trip, and which tunnels add no more; pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.names import names
from tunnelmark.store.values import parsed

_METRICS: Final = ("rtt_p50_ns", "rtt_p99_ns")
"""Quantiles of a round trip, and of the floor."""

_Place = tuple[str, str, str]
"""Tunnel, link, device."""


def floor_notes(trials: pl.DataFrame, points: Sequence[PointEstimates]) -> list[str]:
    """Return how much the lab adds, and where a tunnel adds no more than that.

    ``trials`` are those of a result, ``points`` its points, all paths together. Nothing where no
    floor was measured: in a simulation, over a WLAN or a link whose delay varies.
    """
    floors = _floors(trials)
    if not floors["rtt_p50_ns"]:
        return []
    median, tail = (_span(floors[metric]) for metric in _METRICS)
    words = f"The lab itself, without tunnel and link delay, adds {median} to a round trip"
    found = [f"{words} (median{f'; 99th percentile {tail}' if tail else ''})."]
    for metric, of_places in floors.items():
        if low := list(_no_more(points, of_places, metric)):
            adds = "adds" if len(low) == 1 else "add"
            found.append(
                f"{METRICS[metric].title}: {names(low)} {adds} no more than the lab itself."
            )
    return found


def _floors(trials: pl.DataFrame) -> dict[str, dict[_Place, float]]:
    """Return, by metric, the largest floor of a tunnel's blocks over a link on a device, in ns."""
    found: dict[str, dict[_Place, float]] = {metric: {} for metric in _METRICS}
    has = pl.col("details").str.contains('"instrument_floor"', literal=True)
    own = pl.col("valid") & (pl.col("path") == "total") & ~pl.col("is_baseline")
    rows = trials.filter(own & has)
    for tunnel, link, device, text in rows.select(
        "tunnel", "link", "device", "details"
    ).iter_rows():
        floor: Any = parsed(text).get("instrument_floor")
        if not isinstance(floor, dict):
            continue
        place = (tunnel, link, device)
        for metric, largest in found.items():
            if isinstance(seen := floor.get(metric), int | float):
                largest[place] = max(largest.get(place, 0.0), seen)
    return found


def _no_more(
    points: Sequence[PointEstimates], floors: Mapping[_Place, float], metric: str
) -> Iterator[str]:
    seen: dict[str, list[bool]] = defaultdict(list)
    for point in points:
        floor = floors.get((point.tunnel, point.link, point.device))
        own, change = point.estimates.get(metric), point.differences.get(metric)
        if floor is None or own is None or change is None:
            continue
        # The difference is a ratio to no tunnel less 1.
        seen[point.tunnel].append(own.value * change.value / (1 + change.value) <= floor)
    for tunnel, below in seen.items():
        if any(below):
            where = "" if all(below) else f" at {sum(below)} of {len(below)} points"
            yield f"{tunnel}{where}"


def _span(floors: Mapping[_Place, float]) -> str:
    if not floors:
        return ""
    low, high = (f"{end / 1e6:.2g}" for end in (min(floors.values()), max(floors.values())))
    return f"{low} ms" if low == high else f"{low} to {high} ms"
