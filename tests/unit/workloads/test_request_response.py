"""Transactions: what the engine tells, what is made of it, and what a study may ask for."""

from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.engine.summary import Histogram
from tunnelmark.engine.transactions import AskedFlow, Message, ask_config, parse_ask_summary
from tunnelmark.model.errors import LabError
from tunnelmark.workloads.request_response import RequestResponse, RequestResponseParams, figures

LATENCY: dict[str, Any] = {
    "count": 9,
    "min": 10,
    "p50": 20,
    "p90": 30,
    "p99": 40,
    "p999": 45,
    "tail": 50,
    "max": 50,
    "mean": 21.5,
    "below_zero": 0,
}


def summary(**changes: Any) -> dict[str, Any]:
    flow = {"begun": 10, "answered": 9, "lost": 1, "late": 1, "latency_ns": LATENCY}
    return {
        "event": "summary",
        "span_ns": 3 * 10**9,
        "latency_ns": LATENCY,
        "flows": [flow | changes],
    }


def test_a_summary_is_read() -> None:
    found = parse_ask_summary(summary())
    assert found.span_ns == 3 * 10**9
    assert found.latency_ns == Histogram(**LATENCY)
    assert found.flows == (AskedFlow(10, 9, 1, 1, Histogram(**LATENCY)),)
    assert parse_ask_summary(summary(answered=0, lost=10, latency_ns=None)).flows[0].answered == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answered": -1}, "answered"),
        ({"answered": 8}, "has 10 transactions, of which 8 were answered and 1 lost"),
        ({"latency_ns": 7}, "latency_ns"),
        ({"late": None}, "late"),
    ],
)
def test_a_damaged_summary_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        parse_ask_summary(summary(**changes))


def test_figures_of_several_paths() -> None:
    one = AskedFlow(10, 9, 1, 0, Histogram(**LATENCY))
    other = AskedFlow(3, 3, 0, 0, Histogram(3, 5, 60, 70, 80, 85, 90, 90, 61.0))
    both = Histogram(12, 5, 25, 72, 88, 89, 90, 90, 31.4)
    found = figures([one, other], both, 3.0)
    assert found["rr_transactions_per_s"] == 4
    assert found["rr_latency_min_ns"] == 5
    assert found["rr_latency_max_ns"] == 90
    assert found["rr_latency_p50_ns"] == 25, "of all transactions, no mean of two medians"
    assert found["rr_latency_p90_ns"] is None, "12 answers have no 90th percentile"
    assert found["rr_lost_ratio"] == pytest.approx(1 / 13)
    assert set(found) == set(RequestResponse.metrics)


def test_without_an_answer_there_is_no_latency() -> None:
    found = figures([AskedFlow(2, 0, 2, 0, None)], None, 1.0)
    assert found["rr_latency_p50_ns"] is None
    assert found["rr_latency_min_ns"] is None
    assert found["rr_lost_ratio"] == 1


def test_the_configuration_has_what_the_engine_reads() -> None:
    found = ask_config(
        Message("udp", 7, 32, 64),
        [("127.0.0.1:7700", None)],
        outstanding=2,
        duration_ns=1,
        timeout_ns=2,
        realtime_priority=None,
        parent_pid=None,
    )
    assert found["flows"] == [{"target": "127.0.0.1:7700", "source": None}]
    assert found["message"] == {
        "transport": "udp",
        "session": 7,
        "request_bytes": 32,
        "response_bytes": 64,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"transport": "udp", "response_bytes": "1 MiB"}, "a datagram carries at most 65507"),
        ({"request_bytes": "15 B"}, "greater than or equal to 16"),
        ({"transport": "sctp"}, "connect"),
        ({"outstanding": 0}, "greater than or equal to 1"),
    ],
)
def test_what_a_study_may_not_ask_for(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RequestResponseParams.model_validate(values)


def test_too_many_sockets_are_reported_before_the_run() -> None:
    workload = RequestResponse(RequestResponseParams.model_validate({"outstanding": 100}))
    assert workload.conflict(10) is None
    reason = workload.conflict(11)
    assert reason is not None
    assert "at most 1024" in reason
