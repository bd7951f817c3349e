"""Figures of DNS queries."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_LATENCY: Final = "from the query's sending to its answer, as dnsperf times it, over all that were "

METRICS: Final = (
    Metric(
        "dns_queries_per_s",
        "DNS queries",
        "1/s",
        "queries answered per second, all paths together",
        "dnsperf(1)",
        "higher",
        "log",
    ),
    *(
        Metric(
            f"dns_latency_{column}_ns",
            f"DNS latency, {title}",
            "ns",
            f"{_LATENCY}answered: {title}",
            "dnsperf(1)",
            "lower",
            "log",
        )
        for column, title in (
            ("p50", "median"),
            ("p95", "95th percentile"),
            ("p99", "99th percentile"),
            ("max", "longest"),
        )
    ),
    Metric(
        "dns_lost_ratio",
        "DNS queries lost",
        "ratio",
        "queries without an answer within the timeout, as a share of those whose outcome is known",
        "dnsperf(1)",
        "lower",
    ),
)
