"""Figures of clients that join a gateway while others carry traffic."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_SOURCE: Final = "docs/handshake.md"
_PHASES: Final = (
    ("before", "before joins", "before any client joins"),
    ("joining", "during joins", "while others join"),
)
_QUANTILES: Final = (
    ("p50", "median", ""),
    ("p99", "99th percentile", "; missing below 300 replies"),
)

METRICS: Final = (
    Metric(
        "joins_s",
        "Clients joined per second",
        "1/s",
        "clients that joined, divided by the time from the start of the first to the first reply "
        "of the last one that joined, or to the start of the last if that is later; 0 where none "
        "did",
        _SOURCE,
        "higher",
        "log",
        nothing=0.0,
    ),
    *(
        Metric(
            f"join_added_{name}_ns",
            f"RTT added by joins, {words}",
            "ns",
            f"{words} of the round-trip delay of the clients that stay: while others join minus "
            f"before{few}",
            _SOURCE,
            "lower",
            headline=name == "p99",
        )
        for name, words, few in _QUANTILES
    ),
    *(
        Metric(
            f"{phase}_rtt_{name}_ns",
            f"RTT, {words}, {short}",
            "ns",
            f"{words} of the round-trip delay of the clients that stay, {when}{few}",
            "RFC 2681",
            "lower",
            "log",
        )
        for phase, short, when in _PHASES
        for name, words, few in _QUANTILES
    ),
)
