"""Figures of a load of constant rate, by direction, and of the search for the highest one."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "offered_packet_s",
        "Offered load",
        "packet/s",
        "datagrams per second that the sender was asked to send, each way",
        "RFC 2285 section 3.5.1",
    ),
    Metric(
        "sent_packet_s",
        "Sent load, packets",
        "packet/s",
        "datagrams per second that the sender sent; of two directions the slower one",
        "RFC 2285 section 3.5.2",
    ),
    Metric(
        "received_forward_packet_s",
        "Forwarding rate, forward",
        "packet/s",
        "datagrams that arrived at the server per second, over the same time as goodput",
        "RFC 2285 section 3.6.1",
        "higher",
        "log",
        headline=True,
    ),
    Metric(
        "received_reverse_packet_s",
        "Forwarding rate, reverse",
        "packet/s",
        "datagrams that arrived at the client per second, over the same time as goodput",
        "RFC 2285 section 3.6.1",
        "higher",
        "log",
    ),
    Metric(
        "goodput_reverse_bit_s",
        "Goodput, reverse",
        "bit/s",
        "application payload that reached the client per second, over the same time as goodput",
        "RFC 2647 section 3.17",
        "higher",
        "log",
        headline=True,
        nothing=0.0,
    ),
    Metric(
        "owd_forward_p99_ns",
        "OWD, forward, 99th percentile",
        "ns",
        "99th percentile of the one-way delay to the server; by two clocks within clock_error_ns; "
        "missing below 300 packets",
        "RFC 7679",
        "lower",
        "log",
        headline=True,
        one_clock=True,
        clock_error="clock_error_ns",
    ),
    Metric(
        "owd_reverse_p99_ns",
        "OWD, reverse, 99th percentile",
        "ns",
        "99th percentile of the one-way delay to the client; by two clocks within clock_error_ns; "
        "missing below 300 packets",
        "RFC 7679",
        "lower",
        "log",
        one_clock=True,
        clock_error="clock_error_ns",
    ),
    Metric(
        "throughput_lower_packet_s",
        "Throughput, lower bound",
        "packet/s",
        "highest offered load that the search showed to keep to the loss goal, or what arrived of "
        "it per second where a queue took in the rest; 0 where the path loses too much of every "
        "one, missing where the sender could not send any",
        "RFC 2544 section 26.1, draft-ietf-bmwg-mlrsearch",
        "higher",
        "log",
        headline=True,
    ),
    Metric(
        "throughput_upper_packet_s",
        "Throughput, upper bound",
        "packet/s",
        "lowest offered load that the search showed not to keep to the loss goal; missing where "
        "the highest load that was allowed, or that the sender can send, keeps to it",
        "RFC 2544 section 26.1, draft-ietf-bmwg-mlrsearch",
        "higher",
        "log",
    ),
    Metric(
        "throughput_lower_bit_s",
        "Throughput, payload, lower bound",
        "bit/s",
        "payload per second at the lower bound",
        "RFC 2544 section 26.1",
        "higher",
        "log",
        headline=True,
    ),
    Metric(
        "throughput_upper_bit_s",
        "Throughput, payload, upper bound",
        "bit/s",
        "payload per second at the upper bound",
        "RFC 2544 section 26.1",
        "higher",
        "log",
        headline=True,
    ),
    Metric(
        "throughput_sender_limit_packet_s",
        "Throughput, limit of the sender",
        "packet/s",
        "lowest offered load that our own sender or receiver could not keep up with, where that "
        "ended the search before the path did",
        "docs/loads.md",
    ),
    Metric(
        "search_loss_min_ratio",
        "Loss, smallest of the search",
        "ratio",
        "smallest share lost in a trial of the search, of two directions that of the worse one; "
        "above the loss goal where no load keeps to it, 1: the path is broken",
        "docs/loads.md",
        "lower",
        nothing=1.0,
    ),
    Metric(
        "search_trials",
        "Trials spent",
        "1",
        "trials of the search, including repeated ones",
        "docs/loads.md",
        "lower",
    ),
    Metric(
        "search_s",
        "Time spent",
        "s",
        "sending time of all trials of the search as planned, including repeated ones",
        "docs/loads.md",
        "lower",
    ),
)
