"""Changes of the link begin when the first program that sends is about to start."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from made_contexts import context
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.echo_exchange import Exchange
from tunnelmark.workloads.programs import Bench


class Host:
    """Notes what is started on it."""

    name = unique = "host"

    def __init__(self, name: str, order: list[str]) -> None:
        self._name, self._order = name, order

    def spawn(self, _argv: object, **_: object) -> Any:
        self._order.append(self._name)
        return SimpleNamespace(pid=1, stop=lambda _limit_s: None)


def _context(order: list[str]) -> TrialContext:
    client, server = (Host(name, order) for name in ("client", "server"))
    begins = partial(order.append, "begins")
    return context(0, client=client, server=server, begins=begins)


def test_a_server_does_not_send_of_itself_and_neither_does_what_only_gives_content() -> None:
    order: list[str] = []
    made = _context(order)
    with Bench(made, "trial") as bench:
        bench.start(made.server, ["server"], name="server")
        bench.start(made.client, ["content"], name="content", sends=False)
        bench.start(made.client, ["client"], name="client")
    assert order == ["server", "client", "begins", "client"]


def test_an_exchange_begins_with_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    made = _context(order)
    exchange: Any = Exchange.__new__(Exchange)
    exchange._context, exchange._flows, exchange._processes = made, [], []
    exchange._send_file = exchange._reflect_file = "records"
    exchange._drain_ns = exchange._late_ns = 1
    exchange._segment, exchange._answer = False, True
    monkeypatch.setattr(
        "tunnelmark.workloads.echo_exchange.config.send_config", lambda *_a, **_k: {}
    )
    monkeypatch.setattr(
        "tunnelmark.workloads.echo_exchange.config.reflect_config", lambda *_a, **_k: {}
    )
    exchange._start_reflector()
    exchange._start_sender()
    assert order == ["server", "begins", "client"]
