"""Where packets were lost, by direction and place."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_QUEUES: Final = "in the queues of the sender's interfaces, the tunnel's among them"
_RECEIVER: Final = "at the receiver's interfaces, stack and socket buffers, damaged ones included"
_PLACES: Final = {
    "sender_socket": ("sender's socket", "at the sender's socket and stack"),
    "sender_queue": ("sender's interfaces", _QUEUES),
    "link_queue": ("queue of the link", "in the queue before the link"),
    "link_line": ("line", "on the line itself"),
    "receiver": ("receiver", _RECEIVER),
    "unknown": ("unknown place", "at a place that no counter shows"),
}

METRICS: Final = tuple(
    Metric(
        f"lost_{way}_{place}_ratio",
        f"Lost, {way}, {title}",
        "ratio",
        f"share of the packets sent {way} that were lost {words}",
        "docs/probes.md",
        "lower",
    )
    for way in ("forward", "reverse")
    for place, (title, words) in _PLACES.items()
)
