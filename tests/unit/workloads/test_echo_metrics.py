"""Figures of an echo from the record of every packet, against figures worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.engine.summary import Histogram, ReflectFlow, ReflectSummary, SendFlow, SendSummary
from tunnelmark.workloads.echo_evidence import evidence
from tunnelmark.workloads.echo_metrics import flow_metrics, total_metrics
from tunnelmark.workloads.udp_echo import UdpEcho

MS = 1_000_000
NO = MISSING_NS


def flow(*packets: tuple[int, int, int, int], size: int = 100, late: tuple[int, ...] = ()) -> Flow:
    """Make a flow of (sent, arrived, answered, returned) in ms; a negative time never was."""
    columns = [
        np.array([NO if p[k] < 0 else p[k] * MS for p in packets], dtype=np.int64) for k in range(4)
    ]
    return Flow(
        sent_ns=columns[0],
        size=np.full(len(packets), size, dtype=np.int64),
        arrived_ns=columns[1],
        answered_ns=columns[2],
        returned_ns=columns[3],
        turnround_ns=np.zeros(len(packets), dtype=np.int64),
        late=np.array([k in late for k in range(len(packets))], dtype=np.bool_),
    )


def told(one: Flow, **changes: int) -> SendFlow:
    returned = int((one.returned & ~one.late).sum())
    values = {
        "flow": 0,
        "due": len(one.sent_ns),
        "sent": len(one.sent_ns),
        "not_sent": 0,
        "send_errors": 0,
        "bytes_sent": 0,
        "returned": returned,
        "bytes_returned": 0,
        "duplicates": 0,
        "reordered": 0,
        "remote_received": None,
        "late": int(one.late.sum()),
        "rejected": 0,
        "overrun": 0,
        **changes,
    }
    return SendFlow(
        **values,
        first_sent_ns=0,
        last_sent_ns=0,
        rtt_ns=None,
        owd_forward_ns=None,
        owd_reverse_ns=None,
        ipdv_ns=None,
        lateness_ns=Histogram(1, 0, 0, 0, 500_000, 0, 0, 0.0),
    )


FIVE = flow(
    (0, 10, 11, 21),  # rtt 21
    (10, 20, 21, 35),  # rtt 25
    (20, -1, -1, -1),  # lost forward
    (30, 40, 41, -1),  # lost in reverse
    (40, 60, 62, 80),  # rtt 40
)


def test_figures_by_hand() -> None:
    found = flow_metrics(FIVE, told(FIVE, duplicates=1, reordered=2, overrun=1))
    assert found == {
        # 300 byte after the first arrival in 50 ms; 200 byte after the first return in 59 ms.
        "goodput_bit_s": pytest.approx(300 * 8 / 0.050),
        "goodput_echo_bit_s": pytest.approx(200 * 8 / 0.059),
        "sent_load_bit_s": pytest.approx(400 * 8 / 0.040),
        "loss_forward_ratio": 1 / 5,
        "loss_reverse_ratio": 1 / 4,
        "rtt_min_ns": 21 * MS,
        "rtt_p50_ns": 25 * MS,
        "rtt_p99_ns": pytest.approx(25 * MS + 0.98 * 15 * MS),
        "owd_forward_p50_ns": 10 * MS,
        "owd_reverse_p50_ns": 14 * MS,
        # Only the first two are next to each other.
        "ipdv_p50_ns": 4 * MS,
        "pdv_p99_ns": pytest.approx(4 * MS + 0.98 * 15 * MS),
        "duplicates_ratio": 1 / 3,
        "reordered_ratio": 2 / 3,
        "late_ratio": 0.0,
        "receiver_overrun_ratio": 1 / 5,
    }
    assert set(found) == set(UdpEcho.metrics)


def test_a_late_answer_is_no_loss_and_no_round_trip() -> None:
    late = flow((0, 10, 11, 21), (10, 20, 21, 5000), late=(1,))
    found = flow_metrics(late, told(late))
    assert found["loss_reverse_ratio"] == 0
    assert found["late_ratio"] == 0.5
    assert found["rtt_p99_ns"] == 21 * MS


def test_what_never_was_is_missing_and_not_zero() -> None:
    lost = flow((0, -1, -1, -1), (10, -1, -1, -1))
    found = flow_metrics(lost, told(lost))
    assert found["loss_forward_ratio"] == 1
    assert found["goodput_bit_s"] == 0
    for name in ("loss_reverse_ratio", "rtt_min_ns", "rtt_p50_ns", "pdv_p99_ns", "ipdv_p50_ns"):
        assert found[name] is None
    nothing = flow()
    assert flow_metrics(nothing, told(nothing))["loss_forward_ratio"] is None
    single = flow((0, 10, 11, 20))
    assert flow_metrics(single, told(single))["goodput_bit_s"] is None


TIMES = st.integers(1, 10**6)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    packets = []
    for number in range(draw(st.integers(0, 12))):
        sent = number * 10
        arrived = sent + draw(TIMES) if draw(st.booleans()) else -1
        answered = arrived + draw(TIMES) if arrived >= 0 else -1
        returned = answered + draw(TIMES) if answered >= 0 and draw(st.booleans()) else -1
        packets.append((sent, arrived, answered, returned))
    return flow(*packets)


@given(flows())
def test_laws_of_one_flow(one: Flow) -> None:
    found = flow_metrics(one, told(one))
    sent = len(one.sent_ns)
    if sent:
        reached = 1 - float(found["loss_forward_ratio"] or 0)
        assert reached * sent == pytest.approx(int(one.arrived.sum()))
        back = reached * (1 - float(found["loss_reverse_ratio"] or 0))
        assert back * sent == pytest.approx(int(one.returned.sum()))
    if found["rtt_min_ns"] is not None:
        assert found["rtt_min_ns"] <= (found["rtt_p50_ns"] or 0) <= (found["rtt_p99_ns"] or 0)
        assert found["pdv_p99_ns"] == pytest.approx(
            (found["rtt_p99_ns"] or 0) - found["rtt_min_ns"]
        )
    assert total_metrics([one], [told(one)]) == found


@given(st.lists(flows(), min_size=1, max_size=4), st.integers(-(10**9), 10**9))
def test_the_total_is_of_all_packets_whatever_the_clock_says(
    several: list[Flow], shift_ns: int
) -> None:
    counts = [told(one) for one in several]
    total = total_metrics(several, counts)
    sent = sum(len(one.sent_ns) for one in several)
    lost = sum(int((~one.arrived).sum()) for one in several)
    assert total["loss_forward_ratio"] == (lost / sent if sent else None)

    def shifted(times: np.ndarray) -> np.ndarray:
        return np.where(times == NO, NO, times + shift_ns)

    later = [
        replace(
            one,
            sent_ns=shifted(one.sent_ns),
            arrived_ns=shifted(one.arrived_ns),
            answered_ns=shifted(one.answered_ns),
            returned_ns=shifted(one.returned_ns),
        )
        for one in several
    ]
    assert total_metrics(later, counts) == total


def summaries(one: Flow) -> tuple[SendSummary, ReflectSummary]:
    sent = SendSummary(0, 1, realtime=True, timestamps="kernel", flows=(told(one),))
    arrived = int(one.arrived.sum())
    heard = ReflectFlow(0, arrived, 0, arrived, 0, 0, 0)
    return sent, ReflectSummary(
        realtime=True, timestamps="kernel", rejected=0, overrun=0, turnround_ns=None, flows=(heard,)
    )


def failed(one: Flow, sent: SendSummary, heard: ReflectSummary | None) -> list[str]:
    checks = evidence(sent, heard, [one], late_limit_ns=MS)
    return [check.name for check in checks if not check.ok]


def test_a_whole_exchange_passes_every_check() -> None:
    assert failed(FIVE, *summaries(FIVE)) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sent": 6, "due": 6}, "conservation_forward"),
        ({"returned": 4}, "conservation_reverse"),
        ({"due": 6}, "all_sent"),
        ({"overrun": 1}, "receiver_overrun"),
        ({"rejected": 1}, "foreign_packets"),
    ],
)
def test_a_sender_that_disagrees_with_its_records_is_seen(
    changes: dict[str, int], name: str
) -> None:
    sent, heard = summaries(FIVE)
    assert failed(FIVE, replace(sent, flows=(told(FIVE, **changes),)), heard) == [name]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"received": 5}, "conservation_forward"),
        ({"received": 3}, "conservation_forward"),
        ({"answered": 3}, "conservation_reverse"),
        ({"answered": 5}, "conservation_reverse"),
    ],
)
def test_a_reflector_that_disagrees_with_its_records_is_seen(
    changes: dict[str, int], name: str
) -> None:
    sent, heard = summaries(FIVE)
    other = replace(heard, flows=(replace(heard.flows[0], **changes),))
    assert failed(FIVE, sent, other) == [name]


def test_a_question_that_came_twice_may_be_answered_twice() -> None:
    sent, heard = summaries(FIVE)
    other = replace(heard, flows=(replace(heard.flows[0], answered=5, duplicates=1),))
    assert failed(FIVE, sent, other) == []


def test_an_answer_without_a_question_is_seen() -> None:
    ghost = flow((0, -1, -1, 30))
    sent, heard = summaries(ghost)
    assert "conservation_reverse" in failed(ghost, sent, heard)


def test_lateness_is_judged_at_its_limit_and_a_killed_reflector_is_no_evidence() -> None:
    sent, heard = summaries(FIVE)
    checks = evidence(sent, heard, [FIVE], late_limit_ns=499_999)
    assert [check.name for check in checks if not check.ok] == ["sender_lateness"]
    assert failed(FIVE, sent, None) == ["conservation_forward", "conservation_reverse"]
    silent = replace(sent, flows=(replace(told(FIVE), lateness_ns=None, due=0, sent=0),))
    assert "all_sent" in failed(FIVE, silent, heard)
