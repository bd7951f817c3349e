"""Figures of loads beside a workload, and of what they do to its delay."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric


def _few(name: str) -> str:
    return "; missing below 300 replies" if name.endswith("p99") else ""


METRICS: Final = (
    Metric(
        "background_bit_s",
        "Background",
        "bit/s",
        "payload per second that all background loads delivered, both ways",
        "docs/background.md",
    ),
    Metric(
        "background_packet_s",
        "Background, packets",
        "packet/s",
        "packets of payload per second that all background loads delivered, both ways: datagrams, "
        "and for TCP the payload divided by the segment size",
        "docs/background.md",
    ),
    *(
        Metric(
            f"{state}_{name}_ns",
            f"{title}, {words}",
            "ns",
            f"{definition} of small packets {when}{_few(name)}",
            source,
            "lower",
            "log",
            one_clock=name.startswith("owd"),
            clock_error="clock_error_ns" if name.startswith("owd") else None,
        )
        for state, words, when in (
            ("idle", "idle", "before the load"),
            ("loaded", "under load", "while the load runs"),
        )
        for name, title, definition, source in (
            ("rtt_p50", "RTT, median", "median round-trip delay", "RFC 2681"),
            ("rtt_p99", "RTT, 99th percentile", "99th percentile of the round-trip", "RFC 2681"),
            ("owd_forward_p50", "OWD, forward, median", "median delay to the server", "RFC 7679"),
            ("owd_reverse_p50", "OWD, reverse, median", "median delay to the client", "RFC 7679"),
        )
    ),
    Metric(
        "load_added_rtt_ns",
        "RTT added by load",
        "ns",
        "median round-trip delay under load minus idle",
        "docs/background.md",
        "lower",
    ),
    Metric(
        "load_added_forward_ns",
        "OWD added by load, forward",
        "ns",
        "median one-way delay to the server under load minus idle",
        "docs/background.md",
        "lower",
        one_clock=True,
        clock_error="clock_error_ns",
        clock_errors=2,
    ),
    Metric(
        "load_added_reverse_ns",
        "OWD added by load, reverse",
        "ns",
        "median one-way delay to the client under load minus idle",
        "docs/background.md",
        "lower",
        one_clock=True,
        clock_error="clock_error_ns",
        clock_errors=2,
    ),
)
