"""A trial begins when nothing of the one before is under way any more."""

import time
from collections.abc import Callable
from typing import Final

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.lab import Lab

_LOOK_S: Final = 0.02
_LIMIT_S: Final = 5.0
"""What fills a link for longer than that does not end with the trial that began it."""


def wait_until_quiet(
    lab: Lab,
    *,
    look_s: float = _LOOK_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until the link is empty and stays so for a look; return how long it took, in s.

    After an overload, tunnels still send what they had queued, and the next trial would call it
    foreign. Returns after 5 s at the latest: then the checks of the trial judge.
    """
    start = clock()
    last = lab.counters()
    while last is not None and clock() - start < _LIMIT_S:
        sleep(look_s)
        now = lab.counters()
        if now is None or (_empty(now) and _offered(now) == _offered(last)):
            break
        last = now
    return clock() - start


def _empty(counters: LinkCounters) -> bool:
    return not any(way.get("in_flight", 0) for way in (counters.forward, counters.reverse))


def _offered(counters: LinkCounters) -> tuple[object, object]:
    return counters.forward.get("offered"), counters.reverse.get("offered")
