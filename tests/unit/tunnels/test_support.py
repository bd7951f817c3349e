"""What drivers share: the first packet through a tunnel."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tunnelmark.model.host import Completed, Host
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.tunnels.support import first_packet

PATH = TrafficPath("0", "198.19.0.1", "198.19.0.2", "tun0", "tun0", 1400)
UNREACHABLE = b"1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms\n"
SILENT = b"100 packets transmitted, 0 received, 100% packet loss, time 20000ms\n"


@dataclass
class Pinging:
    """A host on which ping ends at once, each time with the next of these outputs."""

    said: list[bytes]
    waits: list[int] = field(default_factory=list)

    def run(self, argv: Sequence[str], **_more: Any) -> Completed:
        self.waits.append(int(argv[argv.index("-w") + 1]))
        text = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        return Completed(tuple(argv), 0 if b" 1 received" in text else 1, text, b"")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only where somebody sleeps."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + s))


def through(*said: bytes) -> tuple[str | None, list[int]]:
    host = Pinging([*said])
    words = first_packet(cast("Host", host), PATH, limit_s=3)
    return words, host.waits


def test_what_cannot_be_reached_yet_is_asked_again() -> None:
    reached = b"1 packets transmitted, 1 received, 0% packet loss, time 0ms\n"
    assert through(UNREACHABLE, UNREACHABLE, reached) == (None, [3, 3, 3])


def test_what_is_never_reached_is_given_up_at_the_limit() -> None:
    words, waits = through(UNREACHABLE)
    assert words == UNREACHABLE.decode().strip()
    assert 10 <= len(waits) <= 16
    assert waits[-1] == 1


def test_silence_has_had_its_time() -> None:
    assert through(SILENT) == (SILENT.decode().strip(), [3])
