"""Figures of bulk transfers over TCP."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "tcp_goodput_bit_s",
        "TCP goodput",
        "bit/s",
        "payload that the receiving programs read per second, all streams and both directions",
        "RFC 2647 section 3.17",
        "higher",
        "log",
        headline=True,
        nothing=0.0,
    ),
    Metric(
        "tcp_goodput_forward_bit_s",
        "TCP goodput, forward",
        "bit/s",
        "payload that the server read per second",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "tcp_goodput_reverse_bit_s",
        "TCP goodput, reverse",
        "bit/s",
        "payload that the client read per second",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "tcp_goodput_slowest_bit_s",
        "TCP goodput, slowest second",
        "bit/s",
        "payload read in the slowest whole second",
        "docs/workloads-programs.md",
        "higher",
        "log",
    ),
    Metric(
        "tcp_retransmits_per_s",
        "TCP retransmissions",
        "1/s",
        "segments that the senders retransmitted per second",
        "tcp(7), TCP_INFO",
        "lower",
        headline=True,
    ),
    Metric(
        "tcp_rtt_p50_ns",
        "TCP RTT under load, median",
        "ns",
        "median over the seconds of the smoothed RTT that the sending kernel keeps",
        "RFC 6298, tcp(7), TCP_INFO",
        "lower",
        "log",
        headline=True,
    ),
    Metric(
        "tcp_rtt_max_ns",
        "TCP RTT under load, largest",
        "ns",
        "largest over the seconds of the smoothed RTT that the sending kernel keeps",
        "RFC 6298, tcp(7), TCP_INFO",
        "lower",
        "log",
    ),
    Metric(
        "tcp_cwnd_p50_bytes",
        "TCP congestion window, median",
        "byte",
        "median over the seconds of the congestion windows of all streams of a sender together",
        "RFC 5681, tcp(7), TCP_INFO",
    ),
    Metric(
        "tcp_efficiency_ratio",
        "TCP efficiency",
        "ratio",
        "share of the bytes the senders sent that were not retransmissions",
        "RFC 6349 section 4.2",
        "higher",
    ),
    Metric(
        "tcp_buffer_delay_ratio",
        "TCP buffer delay",
        "ratio",
        "mean smoothed RTT during the transfer above the smallest RTT of the idle path before it, "
        "as a multiple of that; of several flows the largest",
        "RFC 6349 section 4.3",
        "lower",
    ),
)
