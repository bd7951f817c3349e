"""Which share of the cores' time the hypervisor took while something was measured."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tunnelmark.probes.cpu import CoreTicks, parse_cores


class Stolen:
    """Looks when it is entered and when it is left."""

    def __init__(self) -> None:
        self.share = 0.0
        self._then: Sequence[CoreTicks] = ()

    def __enter__(self) -> Self:
        self._then = _cores()
        return self

    def __exit__(self, *_: object) -> None:
        used = [now.minus(then) for then, now in zip(self._then, _cores(), strict=True)]
        self.share = sum(core.steal for core in used) / max(1, sum(core.total for core in used))


def _cores() -> Sequence[CoreTicks]:
    return parse_cores(Path("/proc/stat").read_text(encoding="ascii"), time.monotonic_ns())
