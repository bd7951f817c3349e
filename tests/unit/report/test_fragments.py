"""The sentence that says whose packets were fragments."""

from dataclasses import replace

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.report.fragments import fragmented


def point(tunnel: str, share: float | None) -> PointEstimates:
    estimate = Estimate("wire_fragments_ratio", 4, share or 0.0, None, None, 0.95, "t")
    return PointEstimates(
        *("p", "q", tunnel, tunnel),
        is_baseline=tunnel == "none",
        link="8 Mbit/s",
        device="host",
        workload="tcp_bulk",
        workload_kind="tcp_bulk",
        params={},
        path="total",
        valid=4,
        invalid=0,
        estimates={} if share is None else {"wire_fragments_ratio": estimate},
        differences={},
    )


def test_who_fragments_and_who_does_not_are_in_one_sentence() -> None:
    points = [point("none", 0.0), point("a", 0.5), point("b", 0.744), point("d", 0.0)]
    points.append(point("c", None))
    (sentence,) = fragmented(points, "8 Mbit/s, TCP")
    assert sentence.startswith("8 Mbit/s, TCP: of the packets on the link these were fragments: ")
    assert sentence.endswith("74.40 % of b and 50.00 % of a; none of d.")


def test_of_several_points_the_largest_share_counts() -> None:
    points = [replace(point("a", share), workload=f"{share}") for share in (0.0, 0.25, 0.1)]
    (sentence,) = fragmented(points, "x")
    assert sentence.endswith("25.00 % of a.")


def test_where_nothing_or_next_to_nothing_is_in_fragments_nothing_is_said() -> None:
    assert fragmented([point("a", 0.0), point("b", 0.004), point("c", None)], "x") == []
