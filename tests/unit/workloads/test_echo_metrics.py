"""Figures of an echo from the record of every packet, against figures worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.engine.summary import Histogram, ReflectFlow, ReflectSummary, SendFlow, SendSummary
from tunnelmark.workloads.echo_evidence import evidence
from tunnelmark.workloads.echo_metrics import flow_metrics, total_metrics
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

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
        residence_ns=np.zeros(len(packets), dtype=np.int64),
        late=np.array([k in late for k in range(len(packets))], dtype=np.bool_),
    )


def durations(tail_ns: int) -> Histogram:
    return Histogram(1, 0, 0, 0, 0, 0, tail_ns, 0, 0.0)


def reported(one: Flow, **changes: int | None) -> SendFlow:
    returned = int((one.returned & ~one.late).sum())
    values: dict[str, Any] = {
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
        "unrecorded": 0,
        "residence_unknown": 0,
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
        lateness_ns=durations(500_000),
    )


FIVE = flow(
    (0, 10, 11, 21),  # rtt 21
    (10, 20, 21, 35),  # rtt 25
    (20, -1, -1, -1),  # lost forward
    (30, 40, 41, -1),  # lost in reverse
    (40, 60, 62, 80),  # rtt 40
)


def test_figures_by_hand() -> None:
    found = flow_metrics(FIVE, reported(FIVE, duplicates=1, reordered=2, overrun=1))
    assert found == {
        # Offered for 50 ms, the last packet's gap included. The last arrival comes 10 ms later than
        # one without a queue would, 50 ms after the first; the last return 59 ms after it.
        "goodput_bit_s": pytest.approx(400 * 8 / 0.050),
        "goodput_echo_bit_s": pytest.approx(300 * 8 / 0.059),
        "sent_load_bit_s": pytest.approx(500 * 8 / 0.050),
        "loss_forward_ratio": 1 / 5,
        "loss_reverse_ratio": 1 / 4,
        "unanswered_ratio": 2 / 5,
        "rtt_min_ns": 21 * MS,
        "rtt_p50_ns": 25 * MS,
        "rtt_p99_ns": None,
        "owd_forward_p50_ns": 10 * MS,
        "owd_reverse_p50_ns": 14 * MS,
        # Forward: 0 for the first pair, 10 for the last; the lost one is in none.
        "ipdv_p50_ns": 5 * MS,
        "pdv_p99_ns": None,
        "duplicates_ratio": 1 / 3,
        "reordered_ratio": 2 / 3,
        "late_ratio": 0.0,
        "receiver_overrun_ratio": 1 / 5,
    }
    assert set(found) == set(UdpEcho.metrics)


def test_overruns_that_nobody_counts_are_missing() -> None:
    assert flow_metrics(FIVE, reported(FIVE, overrun=None))["receiver_overrun_ratio"] is None


def test_a_late_answer_is_no_loss_and_no_round_trip() -> None:
    late = flow((0, 10, 11, 21), (10, 20, 21, 5000), late=(1,))
    found = flow_metrics(late, reported(late))
    assert found["loss_reverse_ratio"] == 0
    assert found["late_ratio"] == 0.5
    assert found["rtt_p50_ns"] == 21 * MS
    assert found["unanswered_ratio"] == 0.5


def stream(delays_ms: list[float], gap_ms: float = 10) -> Flow:
    """Make a flow whose packets arrive after these delays and are never answered; < 0: lost."""
    rows = [
        (round(k * gap_ms), round(k * gap_ms + d) if d >= 0 else -1, -1, -1)
        for k, d in enumerate(delays_ms)
    ]
    return flow(*rows)


def test_a_tunnel_that_passes_five_of_a_thousand_packets_has_no_full_rate() -> None:
    whole = stream([20.0] * 1000)
    five = stream([20.0] * 5 + [-1.0] * 995)
    offered = flow_metrics(whole, reported(whole))
    assert offered["goodput_bit_s"] == pytest.approx(offered["sent_load_bit_s"])
    found = flow_metrics(five, reported(five))
    assert found["loss_forward_ratio"] == 0.995
    assert offered["goodput_bit_s"] is not None
    assert found["goodput_bit_s"] == pytest.approx(0.005 * offered["goodput_bit_s"])


def test_a_queue_that_is_worked_off_in_the_wait_does_not_flatter() -> None:
    # Half of what is offered passes per second: the last packet comes after twice the time.
    queued = stream([10.0 + 10.0 * k for k in range(100)])
    found = flow_metrics(queued, reported(queued))
    assert found["loss_forward_ratio"] == 0
    assert found["sent_load_bit_s"] is not None
    assert found["goodput_bit_s"] == pytest.approx(found["sent_load_bit_s"] / 2, rel=0.02)


def test_a_percentile_of_the_tail_needs_values_beyond_it() -> None:
    few, enough = stream([float(k) for k in range(299)]), stream([float(k) for k in range(300)])
    assert flow_metrics(few, reported(few))["pdv_p99_ns"] is None
    assert flow_metrics(enough, reported(enough))["pdv_p99_ns"] == pytest.approx(0.99 * 299 * MS)


def test_a_study_cannot_decide_by_a_percentile_that_its_packets_do_not_give() -> None:
    few = UdpEcho(UdpEchoParams(gap="10 ms", payload_bytes=64, packets=299))
    assert "at least 300" in str(few.withheld("rtt_p99_ns"))
    assert few.withheld("rtt_p50_ns") is None
    many = UdpEcho(UdpEchoParams(gap="10 ms", payload_bytes=64, packets=300))
    assert many.withheld("rtt_p99_ns") is None
    assert few.withheld("rtt_p99_ns", 2) is not None, "the stream is spread over them"
    each = UdpEcho(UdpEchoParams(gap="10 ms", payload_bytes=64, packets=150, load="each"))
    assert each.withheld("rtt_p99_ns", 2) is None


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=30), st.integers(-(10**6), 10**6))
def test_one_waiting_time_for_all_packets(delays_ms: list[int], clock_ms: int) -> None:
    one = stream([float(delay) for delay in delays_ms])
    assert one.within(1000 * MS).arrived.tolist() == [delay <= 1000 for delay in delays_ms]
    # With another clock at the far end the quickest packet is taken to need no time.
    other = replace(one, arrived_ns=one.arrived_ns + clock_ms * MS)
    seen = [delay - min(delays_ms) <= 1000 for delay in delays_ms]
    assert other.within(1000 * MS, one_clock=False).arrived.tolist() == seen


def test_an_answer_after_the_waiting_time_is_lost_wherever_it_was_sent() -> None:
    slow = flow((0, 10, 11, 1011), (10, 20, 21, 1010), (20, 1030, 1031, 1050), (30, -1, -1, -1))
    seen = slow.within(1000 * MS)
    assert seen.returned.tolist() == [False, True, False, False]
    assert seen.arrived.tolist() == [True, True, False, False]
    found = flow_metrics(seen, reported(seen))
    assert found["loss_forward_ratio"] == 0.5
    assert found["loss_reverse_ratio"] == 0.5


def test_what_never_was_is_missing_and_not_zero() -> None:
    lost = flow((0, -1, -1, -1), (10, -1, -1, -1))
    found = flow_metrics(lost, reported(lost))
    assert found["loss_forward_ratio"] == 1
    assert found["goodput_bit_s"] == 0
    for name in ("loss_reverse_ratio", "rtt_min_ns", "rtt_p50_ns", "pdv_p99_ns", "ipdv_p50_ns"):
        assert found[name] is None
    nothing = flow()
    assert flow_metrics(nothing, reported(nothing))["loss_forward_ratio"] is None
    single = flow((0, 10, 11, 20))
    assert flow_metrics(single, reported(single))["goodput_bit_s"] is None


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
    found = flow_metrics(one, reported(one))
    sent = len(one.sent_ns)
    if sent:
        reached = 1 - float(found["loss_forward_ratio"] or 0)
        assert reached * sent == pytest.approx(int(one.arrived.sum()))
        back = reached * (1 - float(found["loss_reverse_ratio"] or 0))
        assert back * sent == pytest.approx(int(one.returned.sum()))
    if found["rtt_min_ns"] is not None:
        assert found["rtt_min_ns"] <= (found["rtt_p50_ns"] or 0)
    if found["goodput_bit_s"] is not None and found["sent_load_bit_s"] is not None:
        share = reached * found["sent_load_bit_s"]
        assert found["goodput_bit_s"] <= share * (1 + 1e-9)
    assert total_metrics([one], [reported(one)]) == found


@given(st.lists(flows(), min_size=1, max_size=4), st.integers(-(10**9), 10**9))
def test_the_total_is_of_all_packets_whatever_the_clock_says(
    several: list[Flow], shift_ns: int
) -> None:
    counts = [reported(one) for one in several]
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
    sent = SendSummary(
        0, 1, realtime="kept", timestamps="kernel", awake_ns=1, flows=(reported(one),)
    )
    arrived = int(one.arrived.sum())
    heard = ReflectFlow(0, arrived, 0, arrived, 0, 0, 0)
    return sent, ReflectSummary(
        realtime="kept",
        timestamps="kernel",
        rejected=0,
        overrun=0,
        residence_ns=None,
        flows=(heard,),
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
        ({"overrun": None}, "receiver_overrun"),
        ({"rejected": 1}, "foreign_packets"),
    ],
)
def test_a_sender_that_disagrees_with_its_records_is_seen(
    changes: dict[str, int | None], name: str
) -> None:
    sent, heard = summaries(FIVE)
    assert failed(FIVE, replace(sent, flows=(reported(FIVE, **changes),)), heard) == [name]


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
    silent = replace(sent, flows=(replace(reported(FIVE), lateness_ns=None, due=0, sent=0),))
    assert "all_sent" in failed(FIVE, silent, heard)


def test_replies_that_the_reflector_held_are_no_loss_and_no_burst_of_the_path() -> None:
    sent, heard = summaries(FIVE)
    held = replace(heard, residence_ns=durations(4_300 * MS))
    assert failed(FIVE, sent, held) == ["reply_lateness"]
    (check,) = (c for c in evidence(sent, held, [FIVE], late_limit_ns=MS) if not c.ok)
    assert check.message.startswith("1 % of the replies (two at least) left 4300.000 ms late")
    assert failed(FIVE, sent, replace(heard, residence_ns=durations(MS))) == []
    assert failed(FIVE, sent, replace(heard, residence_ns=None)) == [], "it answered nothing"


@pytest.mark.parametrize("end", ["sender", "reflector"])
def test_an_end_that_lost_its_priority_or_its_timestamps_is_seen(end: str) -> None:
    sent, heard = summaries(FIVE)

    def changed(**changes: str) -> list[str]:
        if end == "sender":
            return failed(FIVE, replace(sent, **changes), heard)  # type: ignore[arg-type]
        return failed(FIVE, sent, replace(heard, **changes))  # type: ignore[arg-type]

    assert changed(realtime="lost") == ["realtime"]
    assert changed(realtime="never") == [], "a place that does not allow it is another matter"
    lost = replace(sent, realtime="lost")
    assert all(c.ok for c in evidence(lost, heard, [FIVE], late_limit_ns=MS, emulated=True))
    assert changed(timestamps="user") == ["timestamps"]


def test_arrivals_by_the_time_that_was_asked_for_are_right() -> None:
    sent, heard = summaries(FIVE)
    user = replace(sent, timestamps="user"), replace(heard, timestamps="user")
    checks = evidence(*user, [FIVE], late_limit_ns=MS, receive_time="user")
    assert all(check.ok for check in checks)


def test_a_round_trip_below_zero_is_seen() -> None:
    # The reflector says that it had the packet longer than it was away.
    wrong = replace(FIVE, residence_ns=np.full(5, 22 * MS, dtype=np.int64))
    assert failed(wrong, *summaries(wrong)) == ["negative_delays"]
