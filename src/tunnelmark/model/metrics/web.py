"""Figures of web pages."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_SOURCE: Final = "docs/workloads-programs.md"

METRICS: Final = (
    Metric(
        "web_page_p50_ns",
        "Page load time, median",
        "ns",
        "from the first attempt to connect to the last byte of the last object, median over the "
        "pages of all paths",
        _SOURCE,
        "lower",
        "log",
    ),
    Metric(
        "web_page_p95_ns",
        "Page load time, 95th percentile",
        "ns",
        "the same; one page in twenty takes longer; missing below 60 pages",
        _SOURCE,
        "lower",
        "log",
    ),
    Metric(
        "web_page_max_ns",
        "Page load time, longest",
        "ns",
        "the same, for the slowest page",
        _SOURCE,
        "lower",
        "log",
    ),
    Metric(
        "web_ttfb_p50_ns",
        "Page, time to first byte, median",
        "ns",
        "from the first attempt to connect to the first byte of the document, median of all pages",
        "curl(1), time_starttransfer",
        "lower",
        "log",
    ),
    Metric(
        "web_object_p50_ns",
        "Page, one object, median",
        "ns",
        "time of one object, including the set-up of a new connection if it needs one",
        "curl(1), time_total",
        "lower",
        "log",
    ),
    Metric(
        "web_object_p95_ns",
        "Page, one object, 95th percentile",
        "ns",
        "the same; one object in twenty takes longer; missing below 60 objects",
        "curl(1), time_total",
        "lower",
        "log",
    ),
    Metric(
        "web_goodput_bit_s",
        "Web goodput",
        "bit/s",
        "bytes of all documents and objects per second of page load time, all paths together",
        "RFC 2647 section 3.17",
        "higher",
        "log",
        nothing=0.0,
    ),
)
