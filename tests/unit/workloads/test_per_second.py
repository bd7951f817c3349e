"""Goodput by second: by time of arrival, whole seconds only."""

import numpy as np

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.workloads.per_second import goodput_seconds

S = 10**9


def flow(sent: list[float], arrived: list[float | None], returned: list[float | None]) -> Flow:
    def times(values: list[float | None]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([MISSING_NS if v is None else int(v * S) for v in values], dtype=np.int64)

    count = len(sent)
    return Flow(
        sent_ns=times(list(sent)),
        size=np.full(count, 125, dtype=np.int64),
        arrived_ns=times(arrived),
        answered_ns=times(arrived),
        returned_ns=times(returned),
        residence_ns=np.zeros(count, dtype=np.int64),
        late=np.zeros(count, dtype=np.bool_),
    )


def test_a_packet_counts_in_the_second_of_its_arrival() -> None:
    one = flow([5.0, 5.5, 6.0, 7.1], [5.2, 6.5, None, 7.2], [5.9, 7.5, None, None])
    assert goodput_seconds([one], one_clock=True) == {
        "forward": [1000.0, 1000.0],
        "reverse": [1000.0, 0.0],
    }


def test_arrivals_out_of_order_count_where_they_arrive() -> None:
    one = flow([1.0, 1.5, 2.0, 3.5], [2.9, 1.6, 2.1, 3.6], [None] * 4)
    assert goodput_seconds([one], one_clock=True)["forward"] == [1000.0, 2000.0]


def test_flows_add_up_from_the_first_packet_of_all() -> None:
    flows = [flow([1.0, 2.0], [1.1, 2.1], [None, None]), flow([1.5], [1.6], [None])]
    assert goodput_seconds(flows, one_clock=True)["forward"] == [2000.0]


def test_what_nobody_answered_has_no_rate_back() -> None:
    one = flow([1.0, 2.0], [1.1, None], [None, None])
    one.answered_ns[:] = MISSING_NS
    assert goodput_seconds([one], one_clock=True) == {"forward": [1000.0], "reverse": []}


def test_nothing_sent_is_no_second() -> None:
    assert goodput_seconds([flow([], [], [])], one_clock=True) == {"forward": [], "reverse": []}


def test_a_far_end_with_a_clock_of_its_own_delivers_as_much() -> None:
    one = flow([5.0, 5.5, 6.0, 7.1], [85.0, 86.3, None, 87.0], [None] * 4)
    assert goodput_seconds([one], one_clock=True)["forward"] == [0.0, 0.0]
    # The quickest packet is the last one, as if it had come when it left.
    assert goodput_seconds([one], one_clock=False)["forward"] == [1000.0, 1000.0]
