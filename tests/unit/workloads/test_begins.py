"""Changes of the link begin when the first program that sends is about to start."""

from types import SimpleNamespace
from typing import Any

import pytest

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
    return TrialContext(
        client=client,  # type: ignore[arg-type]
        server=server,  # type: ignore[arg-type]
        paths=(),
        engine="engine",
        seed=1,
        samples_dir=None,
        sample_stem="trial",
        progress=lambda _progress: None,
        cancelled=lambda: False,
        begins=lambda: order.append("begins"),
    )


def test_a_server_does_not_send_of_itself_and_neither_does_what_only_gives_content() -> None:
    order: list[str] = []
    context = _context(order)
    with Bench(context, "trial") as bench:
        bench.start(context.server, ["server"], name="server")
        bench.start(context.client, ["content"], name="content", sends=False)
        bench.start(context.client, ["client"], name="client")
    assert order == ["server", "client", "begins", "client"]


def test_an_exchange_begins_with_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    context = _context(order)
    exchange: Any = Exchange.__new__(Exchange)
    exchange._context, exchange._flows, exchange._processes = context, [], []
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
