"""Clients that join beside an echo of the others: the order of things, and what counts as what."""

import threading
from collections.abc import Callable
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import LabError, RefusedError, TunnelError
from tunnelmark.model.faults import UnwritableError
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


class Clock:
    """Time that passes where somebody sleeps or waits for a client, for whoever waits alone."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.own = threading.local()

    def monotonic(self) -> float:
        return float(getattr(self.own, "now_s", self.now_s))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Clients:
    """Clients of a gateway that take as long to join as the test says."""

    def __init__(self, *took_ms: int | None, clock: Clock | None = None) -> None:
        self.took = list(took_ms)
        self.said: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.clock = clock

    def leave(self, number: int) -> None:
        self.said.append(("leave", number))

    def join(self, number: int, limit_s: float) -> Callable[[], SetUp]:
        assert limit_s == 3.0
        if self.error is not None:
            raise self.error
        self.said.append(("join", number))
        took = self.took.pop(0)
        failed = "" if took else "no answer"
        begun_s = self.clock.now_s if self.clock else 0.0

        def wait() -> SetUp:
            if self.clock:
                self.clock.own.now_s = begun_s + (took / 1000 if took else limit_s)
            return SetUp(took * MS if took else None, None, None, failed)

        return wait


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


def test_a_client_that_does_not_join_is_a_figure(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(client_joins, "time", clock)
    outcome = workload().run(context(Clients(100, None, 200, clock=clock)))
    assert outcome.measurements[0].metrics["setup_failed_ratio"] == pytest.approx(1 / 3)
    assert outcome.measurements[0].metrics["setup_max_ns"] is None
    # The third began after 20 ms and took 200; that the second was given up after 3 s is no time
    # in which anybody joined.
    assert outcome.measurements[0].metrics["joins_s"] == pytest.approx(2 / 0.22)
    (check,) = (check for check in outcome.checks if check.name == "set_ups")
    assert check.ok
    assert check.message == "1 of 3 set-ups failed within 3 s: no answer"
    assert echo.ended_early


@pytest.mark.usefixtures("echo")
def test_a_gateway_that_refuses_clients_has_no_more_of_them_per_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(client_joins, "time", clock)
    outcome = workload(gap="1 s").run(context(Clients(100, None, None, clock=clock)))
    # Others were still started when the first had joined, the last one 2 s after it.
    assert outcome.measurements[0].metrics["joins_s"] == pytest.approx(1 / 2.0)


@pytest.mark.usefixtures("echo")
def test_where_no_client_joins_none_joined_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(client_joins, "time", clock)
    outcome = workload().run(context(Clients(None, None, None, clock=clock)))
    found = outcome.measurements[0].metrics
    assert (found["joins_s"], found["setup_failed_ratio"]) == (0.0, 1.0)
    assert all(check.ok for check in outcome.checks)


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


def test_a_full_disk_is_no_trial(echo: Echo) -> None:
    clients = Clients()
    clients.error = UnwritableError("client-4.log: cannot be written: No space left on device")
    with pytest.raises(UnwritableError, match="No space left"):
        workload().run(context(clients))
    assert echo.ended_early


@pytest.mark.parametrize("phase", ["before", "joining"])
def test_without_an_echo_there_is_no_figure(echo: Echo, phase: str) -> None:
    echo.missing = phase
    outcome = workload().run(context(Clients(100, 100, 100)))
    assert outcome.measurements == ()
    assert [check.message for check in outcome.checks if not check.ok] == ["it died"]


@pytest.mark.parametrize("raises", [True, False])
def test_nobody_joins_beside_an_echo_that_is_over(
    monkeypatch: pytest.MonkeyPatch, echo: Echo, raises: bool
) -> None:
    def over(own: TrialContext, phase: str, **how: object) -> Outcome:
        if phase != "joining":
            return echo(own, phase, **how)
        if raises:
            raise ValueError("duration is 3750 s")
        return Outcome((), (Check("processes", ok=False, message="it died"),), 0, 0, 0.0)

    monkeypatch.setattr(client_joins, "echo", over)
    clients = Clients(100, 100, 100)
    if raises:
        with pytest.raises(ValueError, match="duration is 3750 s"):
            workload().run(context(clients))
    else:
        outcome = workload().run(context(clients))
        assert outcome.measurements == ()
        assert [check.message for check in outcome.checks if not check.ok] == [
            "the echo of the clients that stay ended before any joined: it died"
        ]
    assert [what for what, _ in clients.said] == ["leave"] * 3


def test_joins_that_take_longer_than_any_echo_are_refused() -> None:
    given = {"joining": 60, "gap": "60 s"}
    with pytest.raises(ValidationError, match="at most 3600 s") as caught:
        ClientJoinsParams.model_validate(given)
    assert "joining is 60 and gap is 60 s" in str(caught.value)
    assert ClientJoinsParams.model_validate(given | {"joining": 58}).joining == 58
    with pytest.raises(ValidationError, match="joining is 199"):
        ClientJoinsParams.model_validate({"joining": 199, "gap": "20 s"})


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
