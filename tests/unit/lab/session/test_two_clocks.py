"""One-way delays of a trial between two simulated clocks: what is reported, and what is not."""

import json
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session.two_clocks import Latest, TwoClocks
from tunnelmark.model.tunnel import TrafficPath

MS = 10**6
SECOND = 10**9
AHEAD_NS = 3 * SECOND
PPM = 40.0


class Clocks(TwoClocks):
    """Both ends, with exchanges over a line that is simulated."""

    def __init__(
        self,
        flows: Sequence[Flow],
        ends: tuple[str, str] = ("192.0.2.1", "192.0.2.2"),
        latest: Latest | None = None,
    ) -> None:
        client, server = object(), object()
        context: Any = SimpleNamespace(client=client, server=server)
        line = TrafficPath("0", *ends, "eth0", "eth0", 1500)
        super().__init__(context, (line,), "t-1", latest or Latest())
        self.ready = list(flows)

    def _send(self) -> Sequence[Flow]:
        return [self.ready.pop(0)]


def far(true_ns: Any, *, step_ns: int = 0, at_ns: int = 6 * SECOND) -> Any:
    """What the server's clock shows; it may be set on the way."""
    shown = true_ns + AHEAD_NS + np.rint(true_ns * PPM * 1e-6).astype(np.int64)
    return shown + np.where(true_ns >= at_ns, step_ns, 0)


def stream(
    start_ns: int,
    ways_ns: tuple[int, int],
    *,
    count: int = 500,
    gap_ns: int = 20 * MS,
    noise_ns: float = 0.0,
    seed: int = 1,
    from_far: bool = False,
    answer: bool = True,
    step_ns: int = 0,
) -> Flow:
    """What both ends record; ``from_far``: the server sends. Every seventh packet is lost."""
    random = np.random.default_rng(seed)
    left = start_ns + np.arange(count, dtype=np.int64) * gap_ns
    noise = [random.exponential(noise_ns + 1e-9, count).astype(np.int64) for _ in range(2)]
    there = left + ways_ns[from_far] + noise[0]
    back = there + ways_ns[not from_far] + noise[1]

    def shown(times: Any, *, by_server: bool) -> Any:
        return far(times, step_ns=step_ns) if by_server else times

    def own(times: Any) -> Any:
        return shown(times, by_server=from_far)

    def other(times: Any) -> Any:
        return shown(times, by_server=not from_far)

    lost = np.arange(count) % 7 == 3
    gone = lost | (not answer)
    return Flow(
        sent_ns=own(left),
        size=np.full(count, 100),
        arrived_ns=np.where(lost, MISSING_NS, other(there)),
        answered_ns=np.where(gone, MISSING_NS, other(there)),
        returned_ns=np.where(gone, MISSING_NS, own(back)),
        residence_ns=np.zeros(count, dtype=np.int64),
        late=np.zeros(count, dtype=np.bool_),
    )


def over_line(start_ns: int, ways_ns: tuple[int, int] = (MS, MS), **more: Any) -> Flow:
    return stream(start_ns, ways_ns, count=50, gap_ns=10 * MS, **more)


def silent(start_ns: int) -> Flow:
    """Packets of which none arrives."""
    flow, none = over_line(start_ns), np.full(50, MISSING_NS)
    return Flow(flow.sent_ns, flow.size, none, none, none, flow.residence_ns, flow.late)


WAYS = st.tuples(st.integers(0, 100 * MS), st.integers(0, 100 * MS))


@settings(deadline=None, max_examples=60)
@given(
    line_ns=WAYS,
    tunnel_ns=WAYS,
    noise_ns=st.floats(0, 5.0 * MS),
    from_far=st.booleans(),
    answer=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_one_way_delays_are_right_within_the_error_whatever_the_delays(
    *,
    line_ns: tuple[int, int],
    tunnel_ns: tuple[int, int],
    noise_ns: float,
    from_far: bool,
    answer: bool,
    seed: int,
) -> None:
    clocks = Clocks([over_line(at * SECOND, line_ns, noise_ns=noise_ns) for at in (0, 11)])
    ways = line_ns[0] + tunnel_ns[0], line_ns[1] + tunnel_ns[1]
    flow = stream(SECOND, ways, noise_ns=noise_ns, seed=seed, from_far=from_far, answer=answer)
    clocks.exchange()
    sender = clocks.context.server if from_far else clocks.context.client
    reported = clocks.to_one_clock(sender, [flow])
    assert reported is not None
    (moved,) = reported.flows
    noise = np.random.default_rng(seed).exponential(noise_ns + 1e-9, 500).astype(np.int64)
    true = ways[from_far] + noise
    off = (moved.owd_forward_ns - true)[flow.arrived]
    # A timestamp's error that was taken off, and rounding.
    assert np.abs(off).max() <= reported.error_ns + 2002
    assert moved.owd_forward_ns[flow.arrived].min() >= 0
    assert moved.arrived.tolist() == flow.arrived.tolist()
    assert moved.returned.tolist() == flow.returned.tolist()
    if noise_ns == 0:
        assert reported.error_ns <= sum(line_ns) / 2 + 0.2 * MS + sum(line_ns) * 0.05


def test_the_error_is_half_of_the_line_s_round_trip_not_of_the_tunnel_s() -> None:
    clocks = Clocks([over_line(at * SECOND, (2 * MS, 3 * MS)) for at in (0, 11)])
    clocks.exchange()
    flow = stream(SECOND, (40 * MS, 60 * MS))
    reported = clocks.to_one_clock(clocks.context.client, [flow])
    assert reported is not None
    assert reported.error_ns == pytest.approx(2.5 * MS, rel=0.1)
    delays = reported.flows[0].owd_forward_ns[flow.arrived]
    assert delays == pytest.approx(40 * MS, abs=reported.error_ns)
    # 40 ppm of ten seconds are 400 us: they are gone, as the offset is.
    assert delays.max() - delays.min() < 20_000
    assert clocks.error_ns == reported.error_ns
    check = clocks.check()
    assert check.ok
    assert check.value == reported.error_ns
    assert "the server's was ahead by 2.99" in check.message
    assert "within 2." in check.message
    assert json.loads(json.dumps(clocks.reported()))["clocks"][0]["drift_ppm"][0] < PPM


def test_the_packets_behind_a_trial_are_those_before_the_next() -> None:
    latest = Latest()
    first = Clocks([over_line(at * SECOND) for at in (0, 11)], latest=latest)
    first.begin()
    assert first.to_one_clock(first.context.client, [stream(SECOND, (MS, MS))]) is not None
    # One exchange is left to be made: that behind it.
    second = Clocks([over_line(24 * SECOND)], latest=latest)
    second.begin()
    second.restart_count()
    flow = stream(13 * SECOND, (40 * MS, 60 * MS))
    reported = second.to_one_clock(second.context.client, [flow])
    assert reported is not None
    assert second.found[-1].start_ns == pytest.approx(11 * SECOND, abs=20 * MS)
    delays = reported.flows[0].owd_forward_ns[flow.arrived]
    assert delays == pytest.approx(40 * MS, abs=reported.error_ns)
    # Of that exchange alone: 43 of 50 come through.
    seen = {"delivered": 100, "delivered_bytes": 100_000}
    less = second.without(LinkCounters(seen, seen, 14))
    assert less is not None
    assert less.forward["delivered"] == 57


def test_packets_of_long_ago_are_not_those_before_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = Latest()
    Clocks([over_line(0)], latest=latest).begin()
    now = time.monotonic_ns()
    for later_s, exchanges in ((4, 0), (6, 1)):
        monkeypatch.setattr(time, "monotonic_ns", lambda s=later_s: now + s * SECOND)
        clocks = Clocks([over_line(9 * SECOND)], latest=latest)
        clocks.begin()
        assert len(clocks.ready) == 1 - exchanges


def test_a_clock_that_is_set_between_two_trials_leaves_the_second_without() -> None:
    latest = Latest()
    first = Clocks([over_line(at * SECOND) for at in (0, 3)], latest=latest)
    first.begin()
    assert first.to_one_clock(first.context.client, [stream(SECOND, (MS, MS), count=90)])
    second = Clocks([over_line(18 * SECOND, step_ns=SECOND)], latest=latest)
    second.begin()
    flow = stream(7 * SECOND, (MS, MS), step_ns=SECOND)
    assert second.to_one_clock(second.context.client, [flow]) is None
    assert "a clock was set meanwhile" in second.check().message


@pytest.mark.parametrize("step_ns", [-SECOND, -30 * MS, 30 * MS, SECOND])
@pytest.mark.parametrize("answer", [True, False])
def test_a_clock_that_is_set_in_mid_trial_leaves_no_one_way_figure(
    *, step_ns: int, answer: bool
) -> None:
    clocks = Clocks([over_line(at * SECOND, step_ns=step_ns) for at in (0, 11)])
    clocks.exchange()
    flow = stream(SECOND, (5 * MS, 5 * MS), step_ns=step_ns, answer=answer)
    assert clocks.to_one_clock(clocks.context.client, [flow]) is None
    assert clocks.error_ns is None
    check = clocks.check()
    assert check.ok
    assert "no one-way delay and no call score" in check.message
    assert "a clock was set meanwhile" in check.message
    assert clocks.reported() == {"clocks": clocks.why}


def test_one_part_without_a_bound_is_none_for_the_trial() -> None:
    clocks = Clocks([silent(0), silent(2 * SECOND), over_line(20 * SECOND)])
    clocks.exchange()
    assert clocks.to_one_clock(clocks.context.client, [silent(SECOND)]) is None
    assert clocks.to_one_clock(clocks.context.client, [silent(3 * SECOND)]) is not None
    assert clocks.error_ns is None


@pytest.mark.parametrize(
    ("ends", "frame_bytes"),
    [(("192.0.2.1", "192.0.2.2"), 106), (("2001:db8::1", "2001:db8::2"), 126)],
)
def test_the_frames_of_the_exchanges_are_not_the_tunnel_s(
    ends: tuple[str, str], frame_bytes: int
) -> None:
    clocks = Clocks([over_line(at * SECOND) for at in (0, 11)], ends)
    clocks.exchange()
    clocks.restart_count()
    clocks.exchange()
    seen = {"delivered": 100, "delivered_bytes": 100_000, "lost": 3}
    less = clocks.without(LinkCounters(seen, seen, 14))
    assert less is not None
    # 7 of 50 are lost on the way.
    left_bytes = 100_000 - 43 * frame_bytes
    assert less.forward == {"delivered": 57, "delivered_bytes": left_bytes, "lost": 3}
    assert clocks.without(None) is None
