"""Measure while the hypervisor leaves the cores alone, as far as it does."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tunnelmark.probes.cpu import CpuProbe
from tunnelmark.probes.proc import ProcCpu

MOST_STOLEN: Final = 0.01
"""A run in which the hypervisor took more of the cores' time is made again."""
MOST_STOLEN_OF_TAILS: Final = 0.002
"""So where the latest 1 % is what is asked for: a pause of 10 ms holds up all that is due in it."""
_TRIES: Final = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Runs(Generic[T]):
    """What some runs gave."""

    values: list[T]
    stolen: float
    """The largest share of the cores' time that the hypervisor took in one of them."""


def how(*compared: Runs[Any]) -> str:
    """Return how often the figures of one line were measured, and how disturbed, for the page."""
    count = len(compared[0].values)
    runs = f"median of {count}" if count > 1 else "one run"
    each = " each" if len(compared) > 1 else ""
    stolen = max(one.stolen for one in compared)
    return f"{runs}{each}; the hypervisor took {stolen:.1%} at most"


def undisturbed(run: Callable[[], T], repeats: int = 1, *, most: float = MOST_STOLEN) -> Runs[T]:
    """Return the least disturbed of as many runs as it takes, of each repeat four at most."""
    seen: list[tuple[float, T]] = []
    while sum(stolen <= most for stolen, _ in seen) < repeats and len(seen) < _TRIES * repeats:
        cores = CpuProbe(dict, ProcCpu())
        cores.start(time.monotonic_ns())
        value = run()
        seen.append((cores.stop(time.monotonic_ns()).steal_ratio or 0.0, value))
    seen.sort(key=lambda one: one[0])
    kept = seen[:repeats]
    return Runs([value for _, value in kept], kept[-1][0])
