"""How calls are heard, against cases worked out by hand."""

import numpy as np
import pytest
from pydantic import ValidationError

from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.workloads.calls import CODECS, CallParams, burst_ratio, hear, lowest, missing_values
from tunnelmark.workloads.emodel import call, rating
from tunnelmark.workloads.search import most
from tunnelmark.workloads.voip import Voip, VoipParams
from tunnelmark.workloads.voip_capacity import VoipCapacity, VoipCapacityParams

MS = 1_000_000


def stream(delays_ms: list[float | None]) -> Flow:
    sent = np.arange(len(delays_ms), dtype=np.int64) * 20 * MS
    arrived = np.array(
        [
            MISSING_NS if delay is None else at + int(delay * MS)
            for at, delay in zip(sent, delays_ms, strict=True)
        ],
        dtype=np.int64,
    )
    none = np.full(len(sent), MISSING_NS, dtype=np.int64)
    return Flow(
        sent_ns=sent,
        size=np.full(len(sent), 172, dtype=np.int64),
        arrived_ns=arrived,
        answered_ns=none,
        returned_ns=none,
        residence_ns=np.zeros(len(sent), dtype=np.int64),
        late=np.zeros(len(sent), dtype=np.bool_),
    )


def test_packets_of_the_codecs() -> None:
    # RFC 3551: 64 kbit/s for 20 ms are 160 bytes; 8 kbit/s are 20; and 12 of RTP.
    assert CallParams(codec="g711").payload == 172
    assert CallParams(codec="g729a").payload == 32
    assert CallParams(codec="opus-16k").payload == 52
    for name, codec in CODECS.items():
        assert codec.frame_bytes * 8 / codec.frame_ns * 1e9 <= 64_000, name


def test_a_clean_call() -> None:
    heard = hear(stream([30.0] * 50), CallParams(codec="g711"))
    assert (heard.sent, heard.lost, heard.discarded) == (50, 0, 0)
    assert heard.owd_p50_ns == 30 * MS
    assert heard.pdv_p99_ns is None, "50 packets have no 99th percentile"
    assert hear(stream([30.0] * 300), CallParams(codec="g711")).pdv_p99_ns == 0
    # A frame of 20 ms, 30 ms on the way, 40 ms of jitter buffer.
    assert heard.mouth_to_ear_ns == 90 * MS
    assert heard.rating == pytest.approx(rating(call(90, 0, ie=0, bpl=4.3)))


def test_what_comes_too_late_counts_as_lost() -> None:
    delays = [*[30.0] * 96, 70.0, 70.1, None, 30.0]
    heard = hear(stream(delays), CallParams(codec="g711"))
    assert (heard.lost, heard.discarded) == (1, 1)
    # Lost and discarded are next to each other: one burst of two among 100.
    assert heard.burst_r == pytest.approx(2 * 0.98)
    expected = rating(call(90, 0.02, ie=0, bpl=4.3, burst_r=1.96))
    assert heard.rating == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pattern", "ratio"),
    [
        ("..........", 1.0),
        ("xxxxxxxxxx", 1.0),
        ("x.........", 1.0),
        ("xx........", 2 * 0.8),
        (".xx....xx.", 2 * 0.6),
        ("xxxx....xx", 3 * 0.4),
    ],
)
def test_bursts(pattern: str, ratio: float) -> None:
    missing = np.array([character == "x" for character in pattern])
    assert burst_ratio(missing) == pytest.approx(ratio)


def test_opus_has_no_published_values() -> None:
    params = CallParams(codec="opus-16k")
    assert hear(stream([10.0] * 5), params).rating is None
    assert "give equipment_impairment" in str(missing_values(params))
    search = VoipCapacity(VoipCapacityParams(codec="opus-16k"))
    assert "opus-16k has no values" in str(search.conflict(1))
    given = CallParams(codec="opus-16k", equipment_impairment=3, loss_robustness=12)
    assert missing_values(given) is None
    assert hear(stream([10.0] * 5), given).rating == pytest.approx(
        rating(call(20 + 6.5 + 10 + 40, 0, ie=3, bpl=12))
    )


def test_half_of_the_values_is_refused() -> None:
    with pytest.raises(ValidationError, match="needs both"):
        CallParams(codec="opus-16k", equipment_impairment=3)


def test_fewer_calls_than_tunnels_are_refused() -> None:
    assert "at least the 3 tunnels" in str(Voip(VoipParams(calls=2)).conflict(3))
    assert Voip(VoipParams(calls=3)).conflict(3) is None


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_the_most_that_is_good(limit: int) -> None:
    for capacity in range(limit + 3):
        tried: list[int] = []

        def good(number: int, tried: list[int] = tried, capacity: int = capacity) -> bool:
            tried.append(number)
            return number <= capacity

        over = None if capacity >= limit else capacity + 1
        assert most(good, limit) == (min(capacity, limit), over)
        assert len(tried) == len(set(tried))
        assert all(1 <= number <= limit for number in tried)


@pytest.mark.parametrize(("first", "step"), [(1, 8), (64, 8), (64, 1), (8, 64)])
def test_a_search_that_begins_near_and_ends_coarsely_still_brackets(first: int, step: int) -> None:
    for capacity in range(140):
        tried: list[int] = []

        def good(number: int, tried: list[int] = tried, capacity: int = capacity) -> bool:
            tried.append(number)
            return number <= capacity

        low, over = most(good, 128, first=first, step=step)
        assert tried[0] == first
        assert len(tried) == len(set(tried))
        assert low <= capacity
        assert (low > 0) == (capacity > 0)
        if over is None:
            assert low == 128
        else:
            assert capacity < over <= low + step or (low, over) == (0, 1)


def test_a_search_is_expected_to_take_as_long_as_it_does() -> None:
    def lasts(**values: object) -> float:
        return VoipCapacity(
            VoipCapacityParams.model_validate({"duration": "1 s", "drain": "700 ms", **values})
        ).expected_s

    assert lasts() == 10 * 2.0
    assert lasts(first_calls=64, most_calls=128, step=8) == 5 * 2.0
    assert lasts(first_calls=64, most_calls=64) == 2.0


def test_a_search_that_begins_beyond_its_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="first_calls is 65, must be at most most_calls, 64"):
        VoipCapacityParams(first_calls=65, most_calls=64)


def test_a_dead_call_is_the_worst_there_is_and_not_unknown() -> None:
    dead = hear(stream([None] * 50), CallParams(codec="g711"))
    assert (dead.lost, dead.mos, dead.owd_p50_ns) == (50, 1.0, None)
    alive = hear(stream([30.0] * 50), CallParams(codec="g711"))
    assert lowest([dead.mos, alive.mos]) == 1.0
    assert hear(stream([None] * 50), CallParams(codec="opus-16k")).mos is None


def test_the_score_of_a_dead_call_does_not_depend_on_the_clocks() -> None:
    dead = hear(stream([None] * 50), CallParams(codec="g711"), 30e6)
    assert dead.rating is not None
    assert dead.rating_range == (dead.rating, dead.rating)
    assert hear(stream([None] * 50), CallParams(codec="opus-16k"), 30e6).rating_range is None


def test_a_call_between_two_clocks_has_no_delay_and_no_score() -> None:
    apart = hear(stream([-5000.0, None, -4990.0]), CallParams(codec="g711"))
    assert (apart.lost, apart.mos, apart.mouth_to_ear_ns, apart.owd_p50_ns) == (1, None, None, None)


def test_the_error_of_two_clocks_is_an_error_of_the_score() -> None:
    delays: list[float | None] = [150.0] * 50
    exact = hear(stream(delays), CallParams())
    found = hear(stream(delays), CallParams(), 30e6)
    assert found.rating == exact.rating
    assert exact.rating_range is None
    assert found.rating_range is not None
    ends = [hear(stream([d] * 50), CallParams()).rating for d in (180.0, 120.0)]
    assert found.rating_range == pytest.approx(tuple(ends))
    assert exact.rating is not None
    assert found.clock_error(float) == pytest.approx(exact.rating - (ends[0] or 0))
    # No delay is below zero, whatever the error.
    near = hear(stream([10.0] * 50), CallParams(), 30e6)
    assert near.rating_range is not None
    assert near.rating_range[1] == hear(stream([0.0] * 50), CallParams()).rating
