"""What the prober asks of the engine: its sessions, and how far apart its probes are."""

import json
from pathlib import PurePosixPath
from typing import Any, cast

import numpy as np
import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber, wider

PATH = TrafficPath("0", "198.19.0.1", "198.19.0.2", "tun0", "tun0", 1500)

MS = 1_000_000


@pytest.mark.parametrize(
    ("rtt_ms", "expected_ms"),
    [
        ([41] * 50, 6),  # the delay of the link does not count
        ([41 + n % 3 for n in range(50)], 6),
        ([41 + n % 5 for n in range(50)], 12),  # as uneven as half the spacing
        ([41 + n for n in range(50)], 85),  # much more uneven
        ([41 + 10 * n for n in range(50)], 120),  # hopeless: not for ever
        ([41] * 9, 12),  # hardly anything came back
        ([], 12),
    ],
)
def test_the_spacing_follows_what_packets_suffer(rtt_ms: list[int], expected_ms: int) -> None:
    rtt_ns = np.array(rtt_ms, dtype=np.int64) * MS
    assert wider(PROBE_SPACING_NS, rtt_ns) == pytest.approx(expected_ms * MS, rel=0.06)


def test_it_never_gets_narrower() -> None:
    assert wider(500 * MS, np.arange(50) * 100 * MS) == 500 * MS


class Listening:
    """A server that notes what its reflector was given, and starts none."""

    name = "server"
    work_dir = PurePosixPath("/tm")

    def __init__(self) -> None:
        self.sessions: list[int] = []

    def spawn(self, _argv: list[str], *, stdin: bytes, **_: Any) -> None:
        self.sessions += [one["session"] for one in json.loads(stdin)["sessions"]]
        raise LabError("enough")


def test_no_two_sizes_of_a_batch_share_a_session_in_the_short_header() -> None:
    sizes = range(24, 324, 5)
    for seed in range(200):
        host = Listening()
        one = cast("Host", host)
        prober = EngineProber(PATH, client=one, server=one, engine="engine", seed=seed)
        with pytest.raises(LabError, match="enough"):
            prober.send(sizes, marker=b"m", repeats=3)
        assert len({session & 0xFFFF for session in host.sessions}) == len(sizes), seed
