"""Figures of a tunnel's set-up."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_SOURCE: Final = "docs/handshake.md"
_TIME: Final = (
    "from the start of the client to the first reply through the tunnel, without the lab's own "
    "work in between"
)
_WAYS: Final = (("forward", "the client"), ("reverse", "the server"))

METRICS: Final = (
    Metric(
        "setup_p50_ns",
        "Set-up time, median",
        "ns",
        f"{_TIME}: median over all set-ups, a failed one counted as longer than any; missing "
        "where half of them failed",
        _SOURCE,
        "lower",
        "log",
        headline=True,
        worth=0.01,
    ),
    Metric(
        "setup_p95_ns",
        "Set-up time, 95th percentile",
        "ns",
        f"{_TIME}: 95th percentile over all set-ups, a failed one counted as longer than any; "
        "missing with fewer than 60 set-ups, or where it is that of a failed one",
        _SOURCE,
        "lower",
        "log",
        worth=0.01,
    ),
    Metric(
        "setup_max_ns",
        "Set-up time, longest",
        "ns",
        f"{_TIME}: longest; missing where one failed",
        _SOURCE,
        "lower",
        "log",
        worth=0.01,
    ),
    Metric(
        "setup_failed_ratio",
        "Set-ups failed",
        "ratio",
        "set-ups without a reply through the tunnel within the limit, as a share of all",
        _SOURCE,
        "lower",
        headline=True,
        nothing=1.0,
    ),
    *(
        Metric(
            f"handshake_bytes_{way}",
            f"Handshake, bytes {way}",
            "byte",
            f"bytes of the IP packets that {end} sent in a set-up, lost and repeated ones "
            "included, the first packet through the tunnel not: mean of those that came up",
            _SOURCE,
            "lower",
            headline=way == "forward",
        )
        for way, end in _WAYS
    ),
    *(
        Metric(
            f"handshake_packets_{way}",
            f"Handshake, packets {way}",
            "1",
            f"IP packets that {end} sent in a set-up, counted as their bytes are",
            _SOURCE,
            "lower",
        )
        for way, end in _WAYS
    ),
)
