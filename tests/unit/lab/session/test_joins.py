"""Clients of a driver of the test's own that leave and join: times, failures, what is known."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.session import joins, set_ups
from tunnelmark.lab.session.joins import Joins
from tunnelmark.lab.session.stand import Side, Stand
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import Endpoint, Milestone, Site, TunnelUp, WireRule

MS = 10**6


class Tunnel:
    """A gateway whose clients do what the test says when they join."""

    confined = False

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.do: Callable[[Site], None] = lambda _site: None
        self.running: tuple[str, ...] = ("first",)

    def leave(self, _site: Site, number: int) -> None:
        self.said.append(("leave", number))
        self.running = ()

    def join(self, site: Site, number: int) -> Callable[[], None]:
        self.said.append(("join", number))
        site.reached(Milestone.DIALING)
        self.running = ("second",)
        return lambda: self.do(site)

    def processes(self) -> Any:
        return self.running

    def down(self) -> None:
        self.said.append(("down", 0))


def made(kind: str = "made") -> tuple[Joins, Tunnel]:
    host: Any = SimpleNamespace(name="client")
    end = Endpoint(host, "198.18.0.1", "fd00::1", "eth0", 1500)
    site = Site(end, end, "tm0", lambda _n: ("", ""), lambda _n: ("", ""))
    tunnel: Any = Tunnel()
    paths: Any = tuple(SimpleNamespace(name=str(n)) for n in range(3))
    side = Side(TunnelUp(paths, (), WireRule(encrypted=True, describe="", ip_protocols=())), (), ())
    lab: Any = SimpleNamespace(site=site)
    stand = Stand(lab, tunnel, side, side, Limits(), Probes(), None, None)
    return Joins(stand, DriverSpec(kind, kind, {})), tunnel


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [0]
    monkeypatch.setattr(set_ups, "time", SimpleNamespace(monotonic_ns=lambda: now[0] * MS))
    return now


def test_a_join_is_timed_without_what_the_lab_does_in_between(clock: list[int]) -> None:
    clients, tunnel = made()

    def do(site: Site) -> None:
        for at_ms, milestone in (
            (100, Milestone.AGREED),
            (150, Milestone.PROBING),
            (170, Milestone.ANSWERED),
        ):
            clock[0] = at_ms
            site.reached(milestone)

    tunnel.do = do
    clients.leave(2)
    assert clients.lost == "client 2 is away: it left"
    wait = clients.join(2, 5.0)
    assert clients.lost is not None
    joined = wait()
    assert (joined.took_ns, joined.forward, joined.reverse) == (120 * MS, None, None)
    assert clients.lost is None
    assert tunnel.said == [("leave", 2), ("join", 2)]


def test_what_stands_names_the_processes_that_carry_the_tunnel_now() -> None:
    clients, tunnel = made()
    clients.leave(1)
    assert clients.stand.own.up.processes == ()
    tunnel.do = lambda site: site.reached(Milestone.ANSWERED)
    clients.join(1, 5.0)()
    assert clients.stand.own.up.processes == ("second",)


def test_a_client_that_does_not_join_is_a_figure_and_leaves_the_tunnel_lost() -> None:
    clients, tunnel = made()

    def do(_site: Site) -> None:
        raise TunnelError("no answer")

    tunnel.do = do
    for number in (1, 2):
        clients.leave(number)
    failed = clients.join(1, 5.0)()
    assert (failed.took_ns, failed.reason) == (None, "no answer")
    tunnel.do = lambda site: site.reached(Milestone.ANSWERED)
    assert clients.join(2, 5.0)().took_ns is not None
    assert clients.lost == "client 1 is away: no answer"


def test_one_that_is_later_than_the_limit_has_failed_and_is_there(clock: list[int]) -> None:
    clients, tunnel = made()

    def do(site: Site) -> None:
        assert site.patience(30.0) == pytest.approx(1.0)
        clock[0] = 1500
        assert site.patience(30.0) == pytest.approx(0.1)
        site.reached(Milestone.ANSWERED)

    tunnel.do = do
    clients.leave(1)
    late = clients.join(1, 1.0)()
    assert (late.took_ns, late.reason) == (None, "it took 1.5 s, the limit is 1 s")
    assert clients.lost is None


def test_what_is_not_as_asked_for_is_raised() -> None:
    clients, tunnel = made()

    def do(_site: Site) -> None:
        raise RefusedError("another cipher")

    tunnel.do = do
    clients.leave(1)
    with pytest.raises(RefusedError):
        clients.join(1, 5.0)()
    assert clients.lost == "client 1 is away: it left"


def test_the_baseline_has_first_answers(monkeypatch: pytest.MonkeyPatch, clock: list[int]) -> None:
    clients, tunnel = made(BASELINE)
    words: list[str | None] = [None, "1 packet transmitted, 0 received"]
    paths: list[str] = []

    def first_through(site: Site, path: Any, *, limit_s: float) -> str | None:
        assert limit_s > 0
        paths.append(path.name)
        clock[0] += 20
        site.reached(Milestone.ANSWERED)
        return words.pop(0)

    monkeypatch.setattr(joins, "first_through", first_through)
    clients.leave(2)
    assert clients.lost is None
    assert clients.join(2, 5.0)().took_ns == 20 * MS
    assert clients.join(1, 5.0)().reason == "1 packet transmitted, 0 received"
    assert (paths, tunnel.said) == (["2", "1"], [])
    assert clients.lost is None
