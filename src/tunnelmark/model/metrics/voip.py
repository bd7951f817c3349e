"""Figures of calls."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_WORST = "of both directions of all calls the lowest; missing where one has no R"

METRICS: Final = (
    Metric(
        "voip_mos_min",
        "MOS, worst call",
        "1",
        f"mean opinion score of the E-model, 1 to 4.5 (1: dead), {_WORST}",
        "ITU-T G.107 annex B",
        "higher",
        headline=True,
        one_clock=True,
        clock_error="voip_mos_clock_error",
    ),
    Metric(
        "voip_mos_p50",
        "MOS, median",
        "1",
        "mean opinion score of the E-model, median of both directions of all calls",
        "ITU-T G.107 annex B",
        "higher",
        headline=True,
        one_clock=True,
        clock_error="voip_mos_clock_error",
    ),
    Metric(
        "voip_rating_min",
        "R, worst call",
        "1",
        f"transmission rating of the E-model, 93.2 at best, {_WORST}",
        "ITU-T G.107 clause 7.1",
        "higher",
        one_clock=True,
        clock_error="voip_rating_clock_error",
    ),
    Metric(
        "voip_rating_p50",
        "R, median",
        "1",
        "transmission rating of the E-model, median of both directions of all calls",
        "ITU-T G.107 clause 7.1",
        "higher",
        one_clock=True,
        clock_error="voip_rating_clock_error",
    ),
    Metric(
        "voip_discard_forward_ratio",
        "Too late, forward",
        "ratio",
        "share of the packets that arrived at the server too late for the jitter buffer",
        "docs/calls.md",
        "lower",
    ),
    Metric(
        "voip_discard_reverse_ratio",
        "Too late, reverse",
        "ratio",
        "share of the packets that arrived at the client too late for the jitter buffer",
        "docs/calls.md",
        "lower",
    ),
    Metric(
        "pdv_forward_p99_ns",
        "PDV, forward, 99th percentile",
        "ns",
        "99th percentile of the one-way delay to the server above the smallest; worst flow, "
        "missing below 300 packets",
        "RFC 5481 section 4.2",
        "lower",
    ),
    Metric(
        "pdv_reverse_p99_ns",
        "PDV, reverse, 99th percentile",
        "ns",
        "99th percentile of the one-way delay to the client above the smallest; worst flow, "
        "missing below 300 packets",
        "RFC 5481 section 4.2",
        "lower",
    ),
    Metric(
        "voip_mouth_to_ear_ns",
        "Mouth to ear",
        "ns",
        "frame, lookahead, smallest one-way delay and jitter buffer; median of all calls",
        "ITU-T G.114",
        "lower",
        headline=True,
        one_clock=True,
        clock_error="clock_error_ns",
    ),
    Metric(
        "voip_calls",
        "Calls carried",
        "1",
        "most simultaneous calls that all reach the requested MOS in both directions",
        "ITU-T G.107",
        "higher",
        headline=True,
        one_clock=True,
    ),
    Metric(
        "voip_calls_over",
        "Calls carried, upper bound",
        "1",
        "fewest simultaneous calls found not to reach it; missing if the highest number allowed "
        "does",
        "ITU-T G.107",
        "higher",
        one_clock=True,
    ),
)
