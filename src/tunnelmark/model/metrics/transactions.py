"""Figures of transactions."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_SOURCE: Final = "docs/workloads-programs.md"

METRICS: Final = (
    Metric(
        "rr_transactions_per_s",
        "Transactions",
        "1/s",
        "requests answered per second, all sockets and paths together; the wait for a lost last "
        "request does not count",
        _SOURCE,
        "higher",
        "log",
        nothing=0.0,
    ),
    *(
        Metric(
            f"rr_latency_{column}_ns",
            f"Transaction, {title.partition(';')[0]}",
            "ns",
            "from the request (with a connection for each, from its beginning to its end) until "
            f"the program has read the response: {title}",
            _SOURCE,
            "lower",
            "log",
        )
        for column, title in (
            ("min", "shortest"),
            ("p50", "median"),
            ("p90", "90th percentile; missing below 30 responses"),
            ("p99", "99th percentile; missing below 300 responses"),
            ("max", "longest"),
        )
    ),
    Metric(
        "rr_lost_ratio",
        "Transactions lost",
        "ratio",
        "requests over UDP without a response within the timeout, as a share of all",
        _SOURCE,
        "lower",
        nothing=1.0,
    ),
)
