"""Figures of a packet stream and its replies."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "goodput_bit_s",
        "Goodput",
        "bit/s",
        "application payload that reached the reflector per second of the time in which it was "
        "offered, and of as much of the subsequent wait as packets still came in, above the "
        "smallest delay; 0 when all is lost",
        "RFC 2647 section 3.17",
        "higher",
        "log",
        headline=True,
        nothing=0.0,
    ),
    Metric(
        "goodput_echo_bit_s",
        "Goodput, echoed",
        "bit/s",
        "application payload that came back per second of the time in which it was offered, and "
        "of as much of the subsequent wait as replies still came in, above the smallest delay; 0 "
        "when all is lost",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "sent_load_bit_s",
        "Sent load",
        "bit/s",
        "application payload handed to the socket per second of the time in which it was offered",
        "RFC 2285 section 3.5.2",
    ),
    Metric(
        "loss_forward_ratio",
        "Loss, forward",
        "ratio",
        "share of the packets sent that did not reach the reflector within the waiting time; 1: "
        "the path is broken",
        "RFC 7680",
        "lower",
        headline=True,
        nothing=1.0,
    ),
    Metric(
        "loss_reverse_ratio",
        "Loss, reverse",
        "ratio",
        "share of the reflector's replies that did not come back within the waiting time after the "
        "packet was sent; missing where it sent none",
        "RFC 7680",
        "lower",
        headline=True,
        nothing=1.0,
    ),
    Metric(
        "unanswered_ratio",
        "No RTT",
        "ratio",
        "share of the packets sent that are in no RTT figure: lost either way, late, or with an "
        "unknown residence time",
        "RFC 2681 section 2.6",
        "lower",
    ),
    Metric(
        "rtt_min_ns",
        "RTT, minimum",
        "ns",
        "smallest round-trip delay, less the residence time at the reflector",
        "RFC 2681",
        "lower",
        "log",
    ),
    Metric(
        "rtt_p50_ns",
        "RTT, median",
        "ns",
        "median round-trip delay, less the residence time at the reflector",
        "RFC 2681",
        "lower",
        "log",
        headline=True,
    ),
    Metric(
        "rtt_p99_ns",
        "RTT, 99th percentile",
        "ns",
        "99th percentile of the round-trip delay, less the residence time at the reflector; "
        "missing below 300 replies",
        "RFC 2681",
        "lower",
        "log",
        headline=True,
    ),
    Metric(
        "owd_forward_p50_ns",
        "OWD, forward, median",
        "ns",
        "median one-way delay to the reflector; by two clocks within clock_error_ns",
        "RFC 7679",
        "lower",
        "log",
        one_clock=True,
        clock_error="clock_error_ns",
    ),
    Metric(
        "owd_reverse_p50_ns",
        "OWD, reverse, median",
        "ns",
        "median one-way delay back from the reflector; by two clocks within clock_error_ns",
        "RFC 7679",
        "lower",
        "log",
        one_clock=True,
        clock_error="clock_error_ns",
    ),
    Metric(
        "ipdv_p50_ns",
        "IPDV, median of the absolute value",
        "ns",
        "median absolute difference of the forward one-way delays of consecutive packets that both "
        "arrived",
        "RFC 3393",
        "lower",
    ),
    Metric(
        "pdv_p99_ns",
        "PDV, 99th percentile",
        "ns",
        "99th percentile of the forward one-way delay above the smallest of its flow; missing "
        "below 300 packets",
        "RFC 5481 section 4.2",
        "lower",
    ),
    Metric(
        "duplicates_ratio", "Duplicates", "ratio", "replies received again, per reply", "RFC 5560"
    ),
    Metric(
        "reordered_ratio",
        "Reordering",
        "ratio",
        "replies whose sequence number is below one seen before, per reply",
        "RFC 4737 section 4.1",
    ),
    Metric(
        "late_ratio",
        "Late arrivals",
        "ratio",
        "replies that came after the study's limit for late ones, yet within the waiting time, per "
        "packet sent",
        "RFC 2681 section 2.6",
    ),
    Metric(
        "receiver_overrun_ratio",
        "Receive-buffer overruns",
        "ratio",
        "packets the kernel dropped at a full socket buffer of the sender, per packet sent; a "
        "trial in which it dropped any at either end is invalid",
        "SO_RXQ_OVFL",
    ),
)
