"""Transactions of ``ask`` against a plain socket that answers when the test wants."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tunnelmark.engine import transactions
from tunnelmark.engine.binary import find_engine
from tunnelmark.model.errors import LabError

# It answers within its time only where it is woken in time.
pytestmark = pytest.mark.paced

MS = 1_000_000


@pytest.fixture
def engine() -> str:
    try:
        return find_engine()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def answering() -> Iterator[Callable[[float], str]]:
    """Return a function that starts a UDP server whose answers come so many seconds late."""
    done = threading.Event()
    threads = []

    def start(delay_s: float) -> str:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)

        def serve() -> None:
            with server:
                while not done.is_set():
                    try:
                        request, peer = server.recvfrom(2048)
                    except TimeoutError:
                        continue
                    time.sleep(delay_s)
                    server.sendto(request, peer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    done.set()
    for thread in threads:
        thread.join()


def ask(engine: str, targets: list[str], **options: int) -> dict[str, Any]:
    document = transactions.ask_config(
        transactions.Message("udp", 7, 64, 64),
        [(target, None) for target in targets],
        outstanding=1,
        realtime_priority=None,
        parent_pid=None,
        **options,
    )
    done = subprocess.run(
        [engine, "ask", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_an_answer_after_its_time_is_late_and_no_answer(
    engine: str, answering: Callable[[float], str]
) -> None:
    # 70 ms late with a patience of 30: the socket used to be looked at every 100 ms only.
    found = ask(engine, [answering(0.07)], duration_ns=100 * MS, timeout_ns=30 * MS)
    (flow,) = found["flows"]
    assert flow["answered"] == 0
    assert flow["lost"] == flow["begun"] > 0
    assert found["latency_ns"] is None


def test_quantiles_of_several_flows_are_of_all_their_transactions(
    engine: str, answering: Callable[[float], str]
) -> None:
    fast, slow = answering(0.0), answering(0.05)
    found = ask(engine, [fast, slow], duration_ns=500 * MS, timeout_ns=1000 * MS)
    counts = [flow["answered"] for flow in found["flows"]]
    assert transactions.parse_ask_summary(found).latency_ns is not None
    assert found["latency_ns"]["count"] == sum(counts)
    assert counts[0] > 4 * counts[1], "the fast one answers many times while the slow one sleeps"
    # Most transactions are fast, so the median of all is; a mean of medians would be milliseconds.
    assert found["latency_ns"]["p50"] < 5 * MS
    assert found["latency_ns"]["max"] >= 50 * MS


def test_the_wait_for_an_answer_that_never_comes_makes_no_rate_smaller(
    engine: str, answering: Callable[[float], str]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        targets = [answering(0.0), f"127.0.0.1:{silent.getsockname()[1]}"]
        found = ask(engine, targets, duration_ns=200 * MS, timeout_ns=2000 * MS)
    assert [flow["lost"] for flow in found["flows"]] == [0, 1]
    assert 200 * MS <= found["span_ns"] < 1000 * MS
