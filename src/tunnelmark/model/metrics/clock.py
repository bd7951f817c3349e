"""Errors of one-way figures where client and server have clocks of their own."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

_SOURCE: Final = "docs/hosts.md"

METRICS: Final = (
    Metric(
        "clock_error_ns",
        "Clock error of one-way delays",
        "ns",
        "largest distance of a one-way delay from the truth, the same way for all packets of a "
        "stream; missing with one clock",
        _SOURCE,
        "lower",
    ),
    Metric(
        "voip_mos_clock_error",
        "Clock error of MOS",
        "1",
        "largest distance of a call's MOS from the truth by the error of its one-way delay; "
        "missing with one clock",
        _SOURCE,
        "lower",
    ),
    Metric(
        "voip_rating_clock_error",
        "Clock error of R",
        "1",
        "largest distance of a call's R from the truth by the error of its one-way delay; missing "
        "with one clock",
        _SOURCE,
        "lower",
    ),
)
