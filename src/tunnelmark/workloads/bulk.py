"""Bulk transfers that no program carries: what virtual time is asked for, and what it gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.iperf3 import Report
from tunnelmark.workloads.tcp_figures import Direction

MOST_MODELLED: Final = 1024
"""Connections that one trial in virtual time may have; the engine refuses more."""


@dataclass(frozen=True)
class BulkFlow:
    """TCP connections over one path in one direction, all at once."""

    path: TrafficPath
    direction: Direction
    streams: int
    seconds: int
    """How long data is sent, its start-up included."""
    congestion: str | None
    """None: the default."""
    window_bytes: int | None
    """Limit of the TCP window; None: what Linux grows its buffers to."""


@dataclass(frozen=True)
class BulkEnds:
    """What both ends of a flow say; ``error`` of the sender's report says why there is nothing."""

    sender: Report
    receiver: Report


CarryBulk = Callable[[Sequence[BulkFlow]], Sequence[BulkEnds]]
"""Carries flows together and returns what came of each; ``LabError`` if none could be carried."""
