"""Figures of set-ups: what failed is in them, and what nobody counted is not there."""

from collections.abc import Callable
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.model.errors import LabError, RefusedError, TunnelError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.set_up import Sent, SetUp
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.handshake import Handshake, HandshakeParams
from tunnelmark.workloads.set_up_figures import figures

MS = 10**6


def took(ms: int, packets: int = 5) -> SetUp:
    return SetUp(ms * MS, Sent(packets, 100 * packets), Sent(packets + 1, 300 * packets))


FAILED = SetUp(None, Sent(9, 900), Sent(0, 0), "no answer within 20 s")


def test_the_median_is_that_of_all_set_ups() -> None:
    found = figures([took(300), took(100), took(200)])
    assert found["setup_p50_ns"] == 200 * MS
    assert found["setup_max_ns"] == 300 * MS
    assert found["setup_failed_ratio"] == 0
    assert figures([took(100), took(200)])["setup_p50_ns"] == 150 * MS


def test_a_failed_one_is_longer_than_any_and_no_count() -> None:
    found = figures([took(100), FAILED, took(200, packets=7), took(300)])
    assert found["setup_failed_ratio"] == pytest.approx(0.25)
    # 100, 200, 300, and the failed one.
    assert found["setup_p50_ns"] == 250 * MS
    assert found["setup_max_ns"] is None
    assert found["handshake_packets_forward"] == pytest.approx((5 + 7 + 5) / 3)
    assert found["handshake_bytes_forward"] == pytest.approx((500 + 700 + 500) / 3)
    assert found["handshake_bytes_reverse"] == pytest.approx((1500 + 2100 + 1500) / 3)


def test_where_half_failed_there_is_no_median() -> None:
    assert figures([took(100), FAILED])["setup_p50_ns"] is None
    assert figures([took(100), took(200), FAILED])["setup_p50_ns"] == 200 * MS


def test_where_all_failed_that_is_the_figure() -> None:
    found = figures([FAILED, FAILED])
    assert found["setup_failed_ratio"] == 1
    assert {found[name] for name in found if name != "setup_failed_ratio"} == {None}


def test_a_tail_needs_enough_set_ups() -> None:
    many = [took(ms) for ms in range(100, 160)]
    assert figures(many[:-1])["setup_p95_ns"] is None
    # Linear between the 57th and the 58th of 60: (60 - 1) * 0.95 = 56.05.
    assert figures(many)["setup_p95_ns"] == pytest.approx(156.05 * MS)
    assert figures([*many[:56], *[FAILED] * 4])["setup_p95_ns"] is None
    assert figures([*many[:58], *[FAILED] * 2])["setup_p95_ns"] == pytest.approx(156.05 * MS)


def test_what_was_not_counted_is_missing() -> None:
    found = figures([took(100), SetUp(200 * MS, None, None)])
    assert found["handshake_bytes_forward"] is None
    assert found["handshake_packets_reverse"] is None
    assert found["setup_p50_ns"] == 150 * MS


def workload(**values: object) -> Handshake:
    return Handshake(HandshakeParams.model_validate(values))


def context(
    set_up: Callable[[float], SetUp] | None, cancelled: Callable[[], bool] = lambda: False
) -> TrialContext:
    host: Any = SimpleNamespace(work_dir=PurePosixPath("/none"))
    return TrialContext(
        client=host,
        server=host,
        paths=(),
        engine="",
        seed=1,
        samples_dir=None,
        sample_stem="t",
        progress=lambda _progress: None,
        cancelled=cancelled,
        set_up=set_up,
    )


def test_it_sets_up_as_often_as_asked_and_says_what_failed() -> None:
    limits: list[float] = []

    def again(limit_s: float) -> SetUp:
        limits.append(limit_s)
        return FAILED if len(limits) == 2 else took(100)

    outcome = workload(set_ups=4, limit="3 s").run(context(again))
    assert limits == [3.0] * 4
    (check,) = outcome.checks
    assert check.ok
    assert check.message == "1 of 4 set-ups failed within 3 s: no answer within 20 s"
    (total,) = outcome.measurements
    assert set(total.metrics) == set(Handshake.metrics)
    assert total.metrics["setup_failed_ratio"] == pytest.approx(0.25)
    assert (outcome.payload_bytes, outcome.payload_packets) == (0, 0)
    assert outcome.measuring_s == pytest.approx(0.3 + 3.0)
    reported: Any = outcome.details["set_ups"]
    assert [one["took_ns"] for one in reported] == [100 * MS, None, 100 * MS, 100 * MS]


def test_a_trial_that_is_cancelled_has_what_it_has() -> None:
    done: list[int] = []

    def again(_limit_s: float) -> SetUp:
        done.append(1)
        return took(100)

    outcome = workload(set_ups=100).run(context(again, lambda: len(done) == 2))
    assert len(done) == 2
    assert outcome.measurements[0].metrics["setup_p50_ns"] == 100 * MS
    nothing = workload().run(context(again, lambda: True))
    assert [check.ok for check in nothing.checks] == [False]
    assert nothing.measurements == ()


@pytest.mark.parametrize("error", [TunnelError, RefusedError, LabError])
def test_what_is_no_failure_of_the_handshake_makes_the_trial_invalid(
    error: type[Exception],
) -> None:
    def again(_limit_s: float) -> SetUp:
        raise error("the server is not there")

    outcome = workload().run(context(again))
    (check,) = outcome.checks
    assert not check.ok
    assert check.message == "set-up 1: the server is not there"
    assert outcome.measurements == ()


def test_a_full_disk_is_no_trial() -> None:
    def again(_limit_s: float) -> SetUp:
        raise UnwritableError("server.log: cannot be written: No space left on device")

    with pytest.raises(UnwritableError, match="No space left"):
        workload().run(context(again))


def test_where_nothing_sets_up_it_is_said() -> None:
    (check,) = workload().run(context(None)).checks
    assert not check.ok


def test_a_percentile_that_can_never_be_is_withheld() -> None:
    assert workload(set_ups=60).withheld("setup_p95_ns") is None
    assert workload(set_ups=59).withheld("setup_p95_ns") == (
        "set_ups is 59, a 95th percentile needs at least 60: repeat more often"
    )
    assert workload(set_ups=1).withheld("setup_p50_ns") is None
