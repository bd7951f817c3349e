"""How long the traffic of a trial was under way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.workloads.streams import under_way_s

_GAP_NS = 1_000_000
_DRAIN_NS = 500_000_000


def flow(
    arrive_ns: list[int | None], *, returns_ns: list[int | None] | None = None, clock_ns: int = 0
) -> Flow:
    """A packet a millisecond; after so many ns each arrives (and returns), None: never."""
    count = len(arrive_ns)
    sent = np.arange(count, dtype=np.int64) * _GAP_NS + 7

    def times(after: list[int | None], clock: int) -> np.ndarray:
        return np.array(
            [
                MISSING_NS if late is None else int(at) + late + clock
                for at, late in zip(sent, after, strict=True)
            ],
            dtype=np.int64,
        )

    nothing = np.full(count, MISSING_NS, dtype=np.int64)
    return Flow(
        sent,
        np.full(count, 100, dtype=np.int64),
        times(arrive_ns, clock_ns),
        nothing,
        nothing if returns_ns is None else times(returns_ns, 0),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
    )


def test_what_keeps_up_is_under_way_while_it_is_offered() -> None:
    assert under_way_s([flow([0] * 100)], _GAP_NS, _DRAIN_NS) == pytest.approx(0.1)
    assert under_way_s([flow([None] * 100)], _GAP_NS, _DRAIN_NS) == pytest.approx(0.1)
    assert under_way_s([], _GAP_NS, _DRAIN_NS) == 0.0


def test_a_queue_that_is_worked_off_counts_as_long_as_it_is_waited_for() -> None:
    # Twice the load that gets through: the last packet comes as late as all took to offer.
    overload = flow([at * _GAP_NS for at in range(100)])
    assert under_way_s([overload], _GAP_NS, _DRAIN_NS) == pytest.approx(0.198)
    assert under_way_s([overload], _GAP_NS, 50_000_000) == pytest.approx(0.15)


def test_an_answer_counts_when_it_is_back() -> None:
    echo = flow([10_000_000] * 100, returns_ns=[41_000_000] * 100, clock_ns=5)
    assert under_way_s([echo], _GAP_NS, _DRAIN_NS) == pytest.approx(0.14)


@given(
    st.lists(st.none() | st.integers(0, 10**9), min_size=1, max_size=30),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**9),
)
def test_it_is_never_shorter_than_the_offer_and_no_clock_matters(
    after: list[int | None], clock_ns: int, drain_ns: int
) -> None:
    offered = len(after) * _GAP_NS / 1e9
    here = under_way_s([flow(after)], _GAP_NS, drain_ns)
    assert offered - 1e-12 <= here <= offered + drain_ns / 1e9 + 1e-12
    assert under_way_s([flow(after, clock_ns=clock_ns)], _GAP_NS, drain_ns) == here
