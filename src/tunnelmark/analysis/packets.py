"""How many packets a trial counted, from its evidence."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Packets:
    """Packets of a trial, or of several together."""

    sent: int = 0
    arrived: int = 0
    """Distinct ones at the reflector."""
    answered: int = 0
    returned: int = 0

    def __add__(self, other: "Packets") -> "Packets":
        """Return both together."""
        return Packets(
            self.sent + other.sent,
            self.arrived + other.arrived,
            self.answered + other.answered,
            self.returned + other.returned,
        )

    def lost(self, metric: str) -> tuple[int, int] | None:
        """Return (lost, entered) for a loss metric; None for others or where nothing entered."""
        pair = {
            "loss_forward_ratio": (self.sent - self.arrived, self.sent),
            "loss_reverse_ratio": (self.answered - self.returned, self.answered),
        }.get(metric)
        if pair is None or not 0 <= pair[0] <= pair[1] or pair[1] == 0:
            return None
        return pair


def packets(details: str, path: str) -> Packets | None:
    """Read the engine's counts of one path (``total``: all) from the details of a trial.

    None where the workload keeps no such counts, or where they are damaged.
    """
    try:
        document = json.loads(details)
    except (ValueError, RecursionError):
        return None
    send = _flows(document, "send", path)
    reflect = _flows(document, "reflect", path)
    if not send or not reflect:
        return None
    counts = [
        _sum(send, "sent"),
        _sum(reflect, "received"),
        _sum(reflect, "answered"),
        _sum(send, "returned"),
    ]
    if any(count is None for count in counts):
        return None
    return Packets(*(count for count in counts if count is not None))


def _flows(document: Any, end: str, path: str) -> list[dict[str, Any]]:
    summary = document.get(end) if isinstance(document, dict) else None
    flows = summary.get("flows") if isinstance(summary, dict) else None
    if not isinstance(flows, list):
        return []
    return [
        flow
        for flow in flows
        if isinstance(flow, dict) and (path == "total" or str(flow.get("flow")) == path)
    ]


def _sum(flows: list[dict[str, Any]], name: str) -> int | None:
    counts = [flow.get(name) for flow in flows]
    if not all(type(count) is int and count >= 0 for count in counts):
        return None
    return sum(count for count in counts if type(count) is int)
