"""The sentence that says why goodput is above the line rate."""

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.report.compressed import compressed


def point(ratio: Estimate | None) -> PointEstimates:
    found = {} if ratio is None else {"compression_ratio": ratio}
    return PointEstimates(
        *("p", "q", "openvpn-lzo", "openvpn-lzo"),
        is_baseline=False,
        link="10 Mbit/s",
        device="host",
        workload="tcp_bulk zero",
        workload_kind="tcp_bulk",
        params={},
        path="total",
        valid=3,
        invalid=0,
        estimates=found,
        differences={},
    )


def ratio(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate("compression_ratio", 3, value, low, high, 0.95, "t on logarithms")


def test_only_what_surely_compresses_is_named() -> None:
    sure, unsure = ratio(8.0, 7.0, 9.0), ratio(1.1, 0.9, 1.3)
    single = ratio(8.0, None, None)
    (sentence,) = compressed([point(sure), point(unsure), point(single), point(None)], "10 Mbit/s")
    assert sentence.startswith(
        "openvpn-lzo over 10 Mbit/s, tcp_bulk zero: each byte on the link carried 8.0 bytes"
    )
