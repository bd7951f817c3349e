"""What the prober asks of the engine: its sessions, and how far apart its probes are."""

import json
from pathlib import PurePosixPath
from typing import Any, cast

import numpy as np
import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber, Spacing, wider

PATH = TrafficPath("0", "198.19.0.1", "198.19.0.2", "tun0", "tun0", 1500)

MS = 1_000_000


@pytest.mark.parametrize(
    ("rtt_ms", "expected_ms"),
    [
        ([41] * 50, 6),  # the delay of the link does not count
        ([41 + n % 3 for n in range(50)], 6),
        ([41 + n % 5 for n in range(50)], 12),  # as uneven as half the spacing
        ([41 + n / 5 for n in range(50)], 17),  # as uneven as that
        ([41 + n for n in range(50)], 24),  # much more uneven: not all of it at once
        ([41] * 9, 12),  # hardly anything came back
        ([], 12),
    ],
)
def test_the_spacing_follows_what_packets_suffer(rtt_ms: list[float], expected_ms: int) -> None:
    rtt_ns = (np.array(rtt_ms) * MS).astype(np.int64)
    assert wider(PROBE_SPACING_NS, rtt_ns) == pytest.approx(expected_ms * MS, rel=0.06)


def test_it_gets_wider_step_by_step_and_not_for_ever() -> None:
    spacing_ns, steps = PROBE_SPACING_NS, []
    for _ in range(5):
        spacing_ns = wider(spacing_ns, np.arange(50) * 10 * MS)
        steps.append(spacing_ns // MS)
    assert steps == [24, 96, 120, 120, 120]


def test_it_never_gets_narrower() -> None:
    assert wider(500 * MS, np.arange(50) * 100 * MS) == 500 * MS


UNEVEN = np.arange(50) * MS
EVEN = np.full(50, 41 * MS)


def test_uneven_replies_make_it_wider_before_it_is_unknown_whose_packets_these_are() -> None:
    spacing = Spacing(6 * MS, stream=False)
    spacing.heard(UNEVEN)
    assert spacing.ns == 24 * MS
    # What the replies asked for is not doubled on top.
    spacing.unknown()
    assert spacing.ns == 24 * MS


def test_over_a_stream_only_a_batch_that_was_unknown_makes_it_wider() -> None:
    spacing = Spacing(6 * MS, stream=True)
    spacing.heard(UNEVEN)
    assert spacing.ns == 6 * MS
    spacing.unknown()
    assert spacing.ns == 24 * MS
    spacing.heard(UNEVEN)
    assert spacing.ns == 24 * MS


@pytest.mark.parametrize("stream", [True, False])
def test_a_batch_that_was_unknown_for_another_reason_doubles_it(*, stream: bool) -> None:
    spacing, steps = Spacing(6 * MS, stream=stream), []
    for _ in range(6):
        spacing.heard(EVEN)
        spacing.unknown()
        steps.append(spacing.ns // MS)
    assert steps == [12, 24, 48, 96, 120, 120]


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
