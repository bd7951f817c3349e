"""Clients that join beside an echo of the others: the order of things, and what counts as what."""

import threading
from collections.abc import Callable
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.model.errors import LabError, RefusedError, TunnelError
from tunnelmark.model.set_up import SetUp
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.validity import Check
from tunnelmark.workloads import client_joins
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.client_joins import ClientJoins, ClientJoinsParams

MS = 10**6
RTT = {"before": (20.0 * MS, 21.0 * MS), "joining": (20.5 * MS, 90.0 * MS)}


class Echo:
    """Echoes that say what the test wants, the second until it is enough."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, list[str]]] = []
        self.ended_early = False
        self.missing = ""

    def __call__(self, context: TrialContext, phase: str, **_: object) -> Outcome:
        self.phases.append((phase, [path.name for path in context.paths]))
        if phase == "joining":
            context.progress(Progress(0.1, {}))
            while not context.enough():
                threading.Event().wait(0.001)
            self.ended_early = True
        if phase == self.missing:
            return Outcome((), (Check("processes", ok=False, message="it died"),), 0, 0, 0.0)
        median, tail = RTT[phase]
        metrics = {
            "rtt_p50_ns": median,
            "rtt_p99_ns": tail,
            "loss_forward_ratio": 0.0,
            "loss_reverse_ratio": 0.25 if phase == "joining" else 0.0,
        }
        return Outcome((Measurement("total", metrics),), (), 1000, 10, 1.5)


class Clients:
    """Clients of a gateway that take as long to join as the test says."""

    def __init__(self, *took_ms: int | None) -> None:
        self.took = list(took_ms)
        self.said: list[tuple[str, int]] = []
        self.error: Exception | None = None

    def leave(self, number: int) -> None:
        self.said.append(("leave", number))

    def join(self, number: int, limit_s: float) -> Callable[[], SetUp]:
        assert limit_s == 3.0
        if self.error is not None:
            raise self.error
        self.said.append(("join", number))
        took = self.took.pop(0)
        failed = "" if took else "no answer"
        return lambda: SetUp(took * MS if took else None, None, None, failed)


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    made = Echo()
    monkeypatch.setattr(client_joins, "echo", made)
    return made


def context(clients: Clients | None, cancelled: Callable[[], bool] = lambda: False) -> TrialContext:
    host: Any = SimpleNamespace(work_dir=PurePosixPath("/none"))
    paths: Any = tuple(SimpleNamespace(name=str(number)) for number in range(5))
    return TrialContext(
        client=host,
        server=host,
        paths=paths,
        engine="",
        seed=1,
        samples_dir=None,
        sample_stem="t",
        progress=lambda _progress: None,
        cancelled=cancelled,
        joining=clients,
    )


def workload(joining: int = 3, gap: str = "10 ms") -> ClientJoins:
    given = {"joining": joining, "gap": gap, "limit": "3 s"}
    return ClientJoins(ClientJoinsParams.model_validate(given))


def test_the_last_clients_leave_and_join_while_the_others_echo(echo: Echo) -> None:
    clients = Clients(100, 300, 200)
    outcome = workload().run(context(clients))
    numbers = (2, 3, 4)
    assert clients.said == [*(("leave", n) for n in numbers), *(("join", n) for n in numbers)]
    assert echo.phases == [("before", ["0", "1"]), ("joining", ["0", "1"])]
    assert echo.ended_early
    (total,) = outcome.measurements
    assert set(total.metrics) == set(ClientJoins.metrics)
    found = total.metrics
    assert (found["setup_p50_ns"], found["setup_max_ns"]) == (200 * MS, 300 * MS)
    assert found["setup_failed_ratio"] == 0
    assert found["before_rtt_p99_ns"] == 21 * MS
    assert found["joining_rtt_p99_ns"] == 90 * MS
    assert found["join_added_p99_ns"] == 69 * MS
    assert found["join_added_p50_ns"] == pytest.approx(0.5 * MS)
    # Of what was sent while clients joined.
    assert found["loss_reverse_ratio"] == pytest.approx(0.25)
    # Three of them in 20 ms at least, since the third began no earlier.
    assert 0 < (found["joins_s"] or 0) <= 3 / 0.02
    assert (outcome.payload_bytes, outcome.payload_packets) == (2000, 20)
    assert outcome.measuring_s == pytest.approx(3.0)
    reported: Any = outcome.details["set_ups"]
    assert [one["took_ns"] for one in reported] == [100 * MS, 300 * MS, 200 * MS]


def test_a_client_that_does_not_join_is_a_figure(echo: Echo) -> None:
    outcome = workload().run(context(Clients(100, None, 200)))
    assert outcome.measurements[0].metrics["setup_failed_ratio"] == pytest.approx(1 / 3)
    assert outcome.measurements[0].metrics["setup_max_ns"] is None
    (check,) = (check for check in outcome.checks if check.name == "set_ups")
    assert check.ok
    assert check.message == "1 of 3 set-ups failed within 3 s: no answer"
    assert echo.ended_early


@pytest.mark.parametrize("error", [TunnelError, RefusedError, LabError])
def test_a_client_that_does_not_start_makes_the_trial_invalid(
    echo: Echo, error: type[Exception]
) -> None:
    clients = Clients()
    clients.error = error("no such program")
    outcome = workload().run(context(clients))
    assert [(check.ok, check.message) for check in outcome.checks] == [(False, "no such program")]
    assert outcome.measurements == ()
    assert echo.ended_early


@pytest.mark.parametrize("phase", ["before", "joining"])
def test_without_an_echo_there_is_no_figure(echo: Echo, phase: str) -> None:
    echo.missing = phase
    outcome = workload().run(context(Clients(100, 100, 100)))
    assert outcome.measurements == ()
    assert [check.message for check in outcome.checks if not check.ok] == ["it died"]


def test_starts_that_come_too_late_make_the_trial_invalid(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.0, 0.0, 0.005, 0.05, *([0.06] * 20)])
    monkeypatch.setattr(
        client_joins, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _s: None)
    )
    outcome = workload(joining=2).run(context(Clients(100, 100)))
    (check,) = (check for check in outcome.checks if check.name == "joins_on_time")
    assert not check.ok
    assert "late; the limit is the gap, 0.01 s" in check.message
    assert echo.ended_early


def test_where_no_client_can_leave_it_is_said() -> None:
    for failing in (context(None), context(Clients())):
        (check,) = workload(joining=5).run(failing).checks
        assert not check.ok


def test_a_trial_that_is_cancelled_before_a_join_has_nothing(echo: Echo) -> None:
    outcome = workload().run(context(Clients(100), lambda: True))
    assert [check.message for check in outcome.checks] == ["the trial ended before a client joined"]
    assert echo.ended_early


def test_a_percentile_that_can_never_be_is_withheld() -> None:
    assert workload().withheld("setup_p95_ns") == (
        "joining is 3, a 95th percentile needs at least 60: repeat more often"
    )
    assert workload().withheld("setup_p50_ns") is None
