"""Figures of DNS queries."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_LATENCY: Final = "from query to response, as dnsperf times it, over all queries with a response"

METRICS: Final = (
    Metric(
        "dns_queries_per_s",
        "DNS queries",
        "1/s",
        "queries with a response per second, all paths together",
        "dnsperf(1)",
        "higher",
        "log",
        nothing=0.0,
    ),
    *(
        Metric(
            f"dns_latency_{column}_ns",
            f"DNS latency, {title.partition(';')[0]}",
            "ns",
            f"{_LATENCY}: {title}",
            "dnsperf(1)",
            "lower",
            "log",
        )
        for column, title in (
            ("p50", "median"),
            ("p95", "95th percentile; missing below 60 responses"),
            ("p99", "99th percentile; missing below 300 responses"),
            ("max", "longest"),
        )
    ),
    Metric(
        "dns_lost_ratio",
        "DNS queries lost",
        "ratio",
        "queries without a response within the timeout, as a share of those whose outcome is known",
        "dnsperf(1)",
        "lower",
        nothing=1.0,
    ),
)
