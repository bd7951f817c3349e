"""What may be late where only medians are reported, and what may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.lateness import LATE_TAIL, Late, lateness_checks
from tunnelmark.model.validity import Check

MS = 1_000_000
LIMIT_NS = 2 * MS
GAP_NS = 20 * MS


def judged(*late: Late, apart_ns: int | None = GAP_NS) -> tuple[Check, ...]:
    words = ("the packets", "left")
    return lateness_checks("made", words, late, limit_ns=LIMIT_NS, apart_ns=apart_ns)


@pytest.mark.parametrize(
    ("late_ms", "apart_ns", "ok", "seen_ms"),
    [
        ((0, 2), GAP_NS, True, (2, 2)),
        ((0, 10), GAP_NS, True, (10, 10)),
        ((0, 11), GAP_NS, False, (11, 10)),  # they come near the next packet
        ((3, 4), GAP_NS, False, (3, 2)),  # what decides the median is late too
        ((0, 3), None, False, (3, 2)),  # there is a 99th percentile
        ((0, 3), 3 * MS, False, (3, 1.5)),  # packets follow each other closely
    ],
)
def test_few_packets_are_judged_by_what_their_figures_need(
    late_ms: tuple[int, int], apart_ns: int | None, ok: bool, seen_ms: tuple[float, float]
) -> None:
    check, *_ = judged(Late(*(one * MS for one in late_ms)), apart_ns=apart_ns)
    assert (check.name, check.ok) == ("made", ok)
    assert (check.value, check.limit) == (seen_ms[0] * MS, seen_ms[1] * MS)


def test_a_valid_trial_says_that_its_latest_packets_are_the_instruments() -> None:
    assert [one.name for one in judged(Late(0, 2 * MS))] == ["made"]
    about = judged(Late(0, 3 * MS))[1]
    assert (about.name, about.ok) == (f"{LATE_TAIL}made", True)
    assert "3.000 ms" in about.message
    assert len(judged(Late(0, 11 * MS))) == 1, "an invalid one is in no figure anyway"


def test_no_packet_is_not_late() -> None:
    assert [one.ok for one in judged()] == [True]


_LATE = st.lists(
    st.tuples(*[st.integers(0, 30 * MS)] * 2).map(lambda ns: Late(*sorted(ns))), max_size=4
)


@given(_LATE, st.one_of(st.none(), st.integers(1, 100 * MS)))
def test_the_worst_stream_decides_and_a_wider_gap_never_spoils(
    late: list[Late], apart_ns: int | None
) -> None:
    ok = all(one.ok for one in judged(*late, apart_ns=apart_ns))
    each = [all(one.ok for one in judged(single, apart_ns=apart_ns)) for single in late]
    assert ok == all(each)
    if all(one.ok for one in judged(*late, apart_ns=None)):
        assert ok
    if ok and apart_ns is not None:
        assert all(one.ok for one in judged(*late, apart_ns=2 * apart_ns))
    if ok:
        assert all(one.p90 <= LIMIT_NS for one in late)
