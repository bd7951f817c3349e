"""Figures of file transfers."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "transfer_time_ns",
        "File transfer, all files",
        "ns",
        "time for all files in sequence, including handshakes; of the slowest path",
        "docs/workloads-programs.md",
        "lower",
        "log",
    ),
    Metric(
        "transfer_goodput_bit_s",
        "File transfer, goodput",
        "bit/s",
        "bytes of all files on all paths per second of that time",
        "RFC 2647 section 3.17",
        "higher",
        "log",
        nothing=0.0,
    ),
    Metric(
        "transfer_file_p50_ns",
        "File transfer, one file, median",
        "ns",
        "median time of a file, including the handshakes of its connection",
        "docs/workloads-programs.md",
        "lower",
        "log",
    ),
    Metric(
        "transfer_file_max_ns",
        "File transfer, one file, longest",
        "ns",
        "time of the slowest file",
        "docs/workloads-programs.md",
        "lower",
        "log",
    ),
    Metric(
        "transfer_file_goodput_p50_bit_s",
        "File transfer, goodput of one file, median",
        "bit/s",
        "median over the files of bytes per second of the file's own time",
        "RFC 2647 section 3.17",
        "higher",
        "log",
    ),
    Metric(
        "transfer_ttfb_p50_ns",
        "Time to first byte, median",
        "ns",
        "from the first attempt to connect to the first byte of the response, median over the "
        "files of HTTP and HTTPS downloads",
        "curl(1), time_starttransfer",
        "lower",
        "log",
    ),
    Metric(
        "transfer_ttfb_max_ns",
        "Time to first byte, longest",
        "ns",
        "the same, for the file that waited longest",
        "curl(1), time_starttransfer",
        "lower",
        "log",
    ),
    Metric(
        "transfer_connect_p50_ns",
        "Connection set-up, median",
        "ns",
        "until TCP and, with HTTPS, TLS is ready, median over new connections of HTTP and HTTPS",
        "curl(1), time_connect, time_appconnect",
        "lower",
        "log",
    ),
)
