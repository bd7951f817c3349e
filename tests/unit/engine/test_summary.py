"""Events of the engine become types, or an error that names the key."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.events import parse_event, wait_for
from tunnelmark.engine.summary import (
    Histogram,
    SendFlow,
    parse_link_direction,
    parse_reflect_summary,
    parse_send_summary,
    plain,
)
from tunnelmark.model.errors import LabError

HISTOGRAM = {
    "count": 9,
    "min": 1,
    "p50": 2,
    "p90": 3,
    "p99": 4,
    "p999": 5,
    "tail": 8,
    "max": 6,
    "mean": 2.5,
    "below_zero": 7,
}
COUNTERS = (
    *("flow", "due", "sent", "not_sent", "send_errors", "bytes_sent", "returned"),
    *("bytes_returned", "duplicates", "reordered", "late", "unrecorded", "residence_unknown"),
    *("rejected", "overrun"),
)
HISTOGRAMS = ("rtt_ns", "owd_forward_ns", "owd_reverse_ns", "lateness_ns")
FLOW: dict[str, Any] = {
    **{name: number for number, name in enumerate(COUNTERS)},
    "remote_received": 7,
    "first_sent_ns": 1,
    "last_sent_ns": None,
    **dict.fromkeys(HISTOGRAMS, HISTOGRAM),
    "owd_reverse_ns": None,
}
SENT: dict[str, Any] = {
    "event": "summary",
    "start_ns": 1,
    "end_ns": 2,
    "realtime": "kept",
    "timestamps": "kernel",
    "awake_ns": 7,
    "flows": [FLOW],
}
LINK: dict[str, Any] = {
    "offered": 10,
    "offered_bytes": 1000,
    "delivered": 9,
    "delivered_bytes": 900,
    "queue_dropped": 0,
    "lost": 1,
    "in_flight": 0,
    "capture_dropped": 0,
    "send_errors": 0,
    "oversized": 0,
    "checksum_missing": 0,
    "lateness_ns": HISTOGRAM,
}


def test_what_is_kept_of_a_summary_is_all_of_it() -> None:
    for value in (parse_send_summary(SENT), parse_link_direction(LINK, "a_to_b"), None):
        kept = plain(value)
        assert kept == (None if value is None else dataclasses.asdict(value))


def test_a_summary_of_a_sender() -> None:
    summary = parse_send_summary(SENT)
    (flow,) = summary.flows
    assert {name: getattr(flow, name) for name in COUNTERS} == {n: FLOW[n] for n in COUNTERS}
    assert flow.rtt_ns == Histogram(9, 1, 2, 3, 4, 5, 8, 6, 2.5, 7)
    assert flow.owd_reverse_ns is None
    assert (flow.first_sent_ns, flow.last_sent_ns) == (1, None)
    assert {field.name for field in dataclasses.fields(SendFlow)} == set(FLOW)


def test_a_summary_of_a_reflector() -> None:
    names = (
        *("flow", "received", "bytes_received", "answered", "duplicates", "reordered"),
        "send_errors",
    )
    flow = {name: number for number, name in enumerate(names)}
    raw = {"realtime": "lost", "timestamps": "user", "rejected": 3, "overrun": 4, "flows": [flow]}
    raw["residence_ns"] = HISTOGRAM
    summary = parse_reflect_summary({"event": "summary", **raw})
    assert dataclasses.asdict(summary) == {**raw, "flows": (flow,)}


def test_counters_of_a_link_may_have_more_than_all_links_have() -> None:
    direction = parse_link_direction({**LINK, "retries": 5}, "a_to_b")
    assert (direction.offered, direction.lost) == (10, 1)


@pytest.mark.parametrize(
    ("flow", "complaint"),
    [
        ({"sent": -1}, "summary of send.flows.0: sent is -1, must be a whole number from 0"),
        ({"sent": True}, "sent is True"),
        ({"sent": "5"}, "sent is '5'"),
        ({"sent": 1 << 65}, "sent is 36893488147419103232"),
        ({"sent": 1.5}, "sent is 1.5"),
        ({"sent": None}, "sent is None"),
        ({"rtt_ns": 5}, "rtt_ns is 5, must be an object"),
        ({"rtt_ns": {}}, "flows.0.rtt_ns: count is missing"),
        ({"rtt_ns": {**HISTOGRAM, "mean": "x"}}, "mean is 'x', must be a number"),
    ],
)
def test_a_wrong_value_is_named(flow: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LabError, match=complaint.replace("(", r"\(")):
        parse_send_summary({**SENT, "flows": [{**FLOW, **flow}]})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted({*SENT, *FLOW})), value=VALUES)
def test_any_value_is_taken_as_it_is_or_refused(key: str, value: Any) -> None:
    inner = {**FLOW, key: value} if key in FLOW else FLOW
    raw = {**SENT, **({key: value} if key not in FLOW else {"flows": [inner]})}
    try:
        summary = parse_send_summary(raw)
    except LabError:
        return
    if key in COUNTERS:
        assert getattr(summary.flows[0], key) == value
        assert type(value) is int or (key == "overrun" and value is None)


@given(st.text(max_size=200))
def test_a_line_is_an_event_or_an_error_of_ours(line: str) -> None:
    try:
        event = parse_event(line)
    except LabError:
        return
    assert isinstance(event["event"], str)


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(LabError, match="has 1048588 characters, at most 1048576 are read"):
        parse_event('{"event":"' + "x" * (1 << 20) + '"}')
    with pytest.raises(LabError, match="has 15 characters, at most 14 are read"):
        parse_event('{"event":"abc"}', longest=14)
    assert parse_event('{"event":"abc"}', longest=15) == {"event": "abc"}
    with pytest.raises(LabError, match="not an event"):
        parse_event("[" * 100_000)


class Lines:
    """A process that says what a test lets it say."""

    name = "engine"

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)

    def read_line(self, timeout_s: float) -> str | None:
        if not self.lines:
            raise TimeoutError(timeout_s)
        return self.lines.pop(0)

    def log_tail(self, lines: int = 5) -> str:
        return f"last words in {lines}"

    def poll(self) -> int:
        return 1


def test_events_before_the_wanted_one_are_passed_on() -> None:
    seen: list[Any] = []
    lines = Lines('{"event":"progress","n":1}', json.dumps(SENT))
    found = wait_for(lines, "summary", limit_s=1, other=seen.append)  # type: ignore[arg-type]
    assert found == SENT
    assert seen == [{"event": "progress", "n": 1}]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((), "engine: no event 'ready' within 1 s"),
        ((None,), "engine ended before its event 'ready': last words in 1"),
        (('{"event":"error","message":"rate is 0"}',), "engine: rate is 0"),
    ],
)
def test_an_engine_that_fails_says_why(lines: tuple[str | None, ...], complaint: str) -> None:
    with pytest.raises(LabError, match=complaint):
        wait_for(Lines(*lines), "ready", limit_s=1)  # type: ignore[arg-type]
