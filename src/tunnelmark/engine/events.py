"""Events of the engine: one JSON object a line, parsed strictly and bounded."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.host import Process

Event = Mapping[str, Any]

LONGEST_EVENT: Final = 1 << 20
"""In characters; the summary of ``sim`` may be longer (``tunnelmark.sim.simulate``)."""


def parse_event(line: str, *, longest: int = LONGEST_EVENT) -> Event:
    """Parse one line of up to so many characters; ``LabError`` if it is not an event."""
    if len(line) > longest:
        raise LabError(
            f"an event of the engine has {len(line)} characters, at most {longest} are read"
        )
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LabError(f"the engine wrote {line[:80]!r}, which is not an event") from error
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise LabError(f"the engine wrote {line[:80]!r}, which is not an event")
    return event


def wait_for(
    process: Process,
    wanted: str,
    *,
    limit_s: float,
    other: Callable[[Event], None] = lambda _event: None,
    now: Callable[[], float] = time.monotonic,
) -> Event:
    """Read events until ``wanted``; others go to ``other``.

    Raises ``LabError`` with the engine's own message if it fails, ends or takes longer.
    """
    end = now() + limit_s
    while True:
        try:
            line = process.read_line(max(0.0, end - now()))
        except TimeoutError as error:
            raise LabFailedError(
                f"{process.name}: no event {wanted!r} within {limit_s:g} s"
            ) from error
        if line is None:
            words = process.log_tail(1) or f"exit status {process.poll()}"
            raise LabFailedError(f"{process.name} ended before its event {wanted!r}: {words}")
        event = parse_event(line)
        if event["event"] == wanted:
            return event
        if event["event"] == "error":
            raise LabFailedError(f"{process.name}: {event.get('message')}")
        other(event)
