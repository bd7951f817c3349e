"""What captures at both ends of the link say, where a study asks for them."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_PARTS: Final = {
    "sender": "from the socket to the link: tunnel, stack and queues of the sending host",
    "link": "from one end of the link to the other",
    "receiver": "from the link to the socket: stack, tunnel and queues of the receiving host",
}
_QUANTILES: Final = {
    "p50": ("median", ""),
    "p99": ("99th percentile", "; missing below 300 packets"),
}

METRICS: Final = (
    *(
        Metric(
            f"delay_{way}_{part}_{name}_ns",
            f"Delay, {way}, {part}, {words}",
            "ns",
            f"{words} of the delay {way} {where}{few}",
            "docs/probes.md",
            "lower",
            "log",
        )
        for way in ("forward", "reverse")
        for part, where in _PARTS.items()
        for name, (words, few) in _QUANTILES.items()
    ),
    Metric(
        "wire_packets_per_datagram",
        "Packets on the link per datagram",
        "1",
        "IP packets that the client's end of the link saw per datagram delivered, both ways",
        "docs/probes.md",
        "lower",
    ),
    Metric(
        "wire_fragments_ratio",
        "Fragments on the link",
        "ratio",
        "share of the IP packets on the link that are fragments",
        "docs/probes.md",
        "lower",
    ),
)
