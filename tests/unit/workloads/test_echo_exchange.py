"""How an exchange that should end early ends: its sender still waits for what is under way."""

import json
import struct
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from signal import SIGTERM
from typing import Any

import pytest

from tunnelmark.engine import config
from tunnelmark.model.host import Completed
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.echo_exchange import Exchange

S = 10**9
ENDED_WITHIN_S = 5.0 + 0.25 + 2.0
"""Time for an end in order, a look at it, and the grace before KILL."""
SENT = {
    "event": "summary",
    "start_ns": 1,
    "end_ns": 2,
    "realtime": "kept",
    "timestamps": "kernel",
    "awake_ns": 0,
    "flows": [],
}
REFLECTED = {
    "event": "summary",
    "realtime": "kept",
    "timestamps": "kernel",
    "rejected": 0,
    "overrun": 0,
    "residence_ns": None,
    "flows": [],
}


class Engine:
    """A sender or a reflector that needs ``needs_s`` from TERM to its summary."""

    pid = host_pid = 1

    def __init__(self, argv: Sequence[str], name: str, needs_s: float) -> None:
        self.argv, self.name = tuple(argv), name
        self.needs_s = needs_s
        self.asked = False
        """Whether it should end."""
        self.waited_s = 0.0
        """For it, since then."""
        self.status: int | None = None
        self.hangs = False
        self.lines: deque[str] = deque()
        if self.is_reflector:
            self.lines.append('{"event": "ready"}')

    @property
    def is_reflector(self) -> bool:
        return self.argv[1] == "reflect"

    def poll(self) -> int | None:
        return self.status

    def wait(self, timeout_s: float) -> int:
        assert self.status is not None, timeout_s
        return self.status

    def signal(self, number: int) -> None:
        assert number == SIGTERM
        self.asked = True

    def stop(self, grace_s: float = 2.0) -> int:
        self.asked = True
        self._wait(grace_s)
        if self.status is None:
            self.status = -9
        return self.status

    def _wait(self, seconds: float) -> None:
        if self.status is None and self.asked:
            self.waited_s += min(seconds, max(0.0, self.needs_s - self.waited_s))
            if self.waited_s >= self.needs_s:
                self.status = 0
                self.lines.append(json.dumps(REFLECTED if self.is_reflector else SENT))

    def read_line(self, timeout_s: float) -> str | None:
        self._wait(timeout_s)
        if self.lines and not self.hangs:
            return self.lines.popleft()
        if self.status is None or self.hangs:
            raise TimeoutError(f"nothing for {timeout_s:g} s")
        return None

    def log_tail(self, lines: int = 5) -> str:  # noqa: ARG002 - there is no log
        return ""


class Computer:
    """A host on which engines run."""

    def __init__(self, name: str, needs_s: float = 0.0) -> None:
        self.name, self.needs_s = name, needs_s
        self.work_dir = PurePosixPath("/none")
        self.started: list[Engine] = []
        self.hangs = False

    def spawn(self, argv: Sequence[str], *, name: str, **_: object) -> Engine:
        self.started.append(Engine(argv, name, self.needs_s))
        self.started[-1].hangs = self.hangs
        return self.started[-1]

    def get(self, path: PurePosixPath, **_: object) -> bytes:
        kind, size = (1, 64) if ".send." in path.name else (2, 40)
        return struct.pack("<8sHHIQq32s", b"TMREC\0\0\0", 1, kind, size, 0, 0, b"")

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        return Completed(tuple(argv), 0, b"", b"")


def exchange(
    client: Computer,
    *,
    drain_ns: int,
    enough: Callable[[], bool] = lambda: True,
    cancelled: Callable[[], bool] = lambda: False,
) -> Exchange:
    hosts: Any = (client, Computer("server"))
    flow = config.Flow(
        session=config.Session(0, 1, "0" * 32),
        target="198.18.0.2:7700",
        source=None,
        gap_ns=S,
        start_offset_ns=0,
        packets=3600,
        duration_ns=None,
        payload_bytes=100,
        content={"type": "zero"},
    )
    context = TrialContext(
        client=hosts[0],
        server=hosts[1],
        paths=(),
        engine="tunnelmark-engine",
        seed=1,
        samples_dir=None,
        sample_stem="trial-1",
        progress=lambda _progress: None,
        cancelled=cancelled,
        enough=enough,
    )
    return Exchange(context, [flow], drain_ns=drain_ns, late_ns=drain_ns)


@pytest.mark.parametrize("drain_s", [5, 60])
def test_a_sender_that_is_to_end_has_the_time_that_it_waits_for_its_last_packet(
    drain_s: int,
) -> None:
    client = Computer("client", needs_s=drain_s + 0.1)
    with exchange(client, drain_ns=drain_s * S) as one:
        found = one.run()
    assert found.problems == []
    assert found.sent is not None
    assert found.reflected is not None


def test_a_sender_that_never_reports_is_given_up_after_its_drain_and_5_s() -> None:
    client = Computer("client")
    client.hangs = True
    with exchange(client, drain_ns=7 * S) as one:
        found = one.run()
    assert found.sent is None
    assert found.problems == ["the sender (send) did not end within 12 s"]


def test_who_interrupts_a_run_does_not_wait_for_a_long_drain() -> None:
    client = Computer("client", needs_s=60.1)
    with exchange(client, drain_ns=60 * S, enough=lambda: False, cancelled=lambda: True) as one:
        found = one.run()
    (sender,) = client.started
    assert sender.waited_s <= ENDED_WITHIN_S
    assert found.problems[0] == "the trial was ended early"


def test_who_interrupts_a_drain_does_not_wait_for_the_rest_of_it() -> None:
    client = Computer("client", needs_s=60.1)

    def cancelled() -> bool:
        return client.started[0].waited_s > 0.1

    with exchange(client, drain_ns=60 * S, cancelled=cancelled) as one:
        found = one.run()
    (sender,) = client.started
    assert 0.1 < sender.waited_s <= ENDED_WITHIN_S
    assert found.problems == ["the sender (send) did not end within 5 s"]
