"""Figures of a packet stream and its answers."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "goodput_bit_s",
        "Goodput",
        "bit/s",
        "application payload that reached the reflector after the first packet, per second from "
        "the first arrival to the last",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "goodput_echo_bit_s",
        "Goodput, echoed",
        "bit/s",
        "application payload that came back after the first answer, per second from the first "
        "return to the last",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "sent_load_bit_s",
        "Sent load",
        "bit/s",
        "application payload handed to the socket per second of sending time",
        "RFC 2285 section 3.5.2",
    ),
    Metric(
        "loss_forward_ratio",
        "Loss, forward",
        "ratio",
        "share of the packets sent that never reached the reflector",
        "RFC 7680",
        "lower",
    ),
    Metric(
        "loss_reverse_ratio",
        "Loss, reverse",
        "ratio",
        "share of the packets the reflector answered that never came back",
        "RFC 7680",
        "lower",
    ),
    Metric(
        "rtt_min_ns",
        "RTT, minimum",
        "ns",
        "smallest round-trip delay, less the turn-round of the reflector",
        "RFC 2681",
        "lower",
        "log",
    ),
    Metric(
        "rtt_p50_ns",
        "RTT, median",
        "ns",
        "median round-trip delay, less the turn-round of the reflector",
        "RFC 2681",
        "lower",
        "log",
    ),
    Metric(
        "rtt_p99_ns",
        "RTT, 99th percentile",
        "ns",
        "99th percentile of the round-trip delay, less the turn-round of the reflector",
        "RFC 2681",
        "lower",
        "log",
    ),
    Metric(
        "owd_forward_p50_ns",
        "OWD, forward, median",
        "ns",
        "median one-way delay to the reflector; both ends read one clock",
        "RFC 7679",
        "lower",
        "log",
    ),
    Metric(
        "owd_reverse_p50_ns",
        "OWD, reverse, median",
        "ns",
        "median one-way delay back from the reflector; both ends read one clock",
        "RFC 7679",
        "lower",
        "log",
    ),
    Metric(
        "ipdv_p50_ns",
        "IPDV, median of the absolute value",
        "ns",
        "median absolute difference of the RTT of consecutive packets",
        "RFC 3393",
        "lower",
    ),
    Metric(
        "pdv_p99_ns",
        "PDV, 99th percentile",
        "ns",
        "99th percentile of the RTT above the smallest RTT of the trial",
        "RFC 5481 section 4.2",
        "lower",
    ),
    Metric(
        "duplicates_ratio", "Duplicates", "ratio", "answers received again, per answer", "RFC 5560"
    ),
    Metric(
        "reordered_ratio",
        "Reordering",
        "ratio",
        "answers whose sequence number is below one seen before, per answer",
        "RFC 4737 section 4.1",
    ),
    Metric(
        "late_ratio",
        "Late arrivals",
        "ratio",
        "answers that came after the study's limit, per packet sent",
        "RFC 2681 section 2.6",
    ),
    Metric(
        "receiver_overrun_ratio",
        "Receive-buffer overruns",
        "ratio",
        "packets the kernel dropped at a full socket buffer of ours, per packet sent",
        "SO_RXQ_OVFL",
    ),
)
