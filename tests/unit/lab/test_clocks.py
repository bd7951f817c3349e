"""Two clocks whose offset and drift are known, over lines whose delays are anything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelmark.lab.clocks import ClockOffset, Times, clock_offset

SECOND = 10**9


def exchanges(
    *,
    offset_ns: int,
    drift_ppm: float,
    forward_ns: int,
    reverse_ns: int,
    noise_ns: tuple[float, float],
    count: int = 200,
    seconds: float = 10.0,
    seed: int = 1,
) -> tuple[Times, Times, Times, Times]:
    """Times of exchanges; noise is added to each delay, exponential, of its own mean each way."""
    random = np.random.default_rng(seed)
    sent = np.linspace(0, seconds * SECOND, count).astype(np.int64) + 7 * SECOND

    def far(true: Times) -> Times:
        drifted: Times = np.rint((true - sent[0]) * drift_ppm * 1e-6).astype(np.int64)
        return true + offset_ns + drifted

    def delays(least: int, mean: float) -> Times:
        return least + random.exponential(max(mean, 1e-9), count).astype(np.int64)

    arrived = sent + delays(forward_ns, noise_ns[0])
    answered = arrived + 20_000
    returned = answered + delays(reverse_ns, noise_ns[1])
    return sent, far(arrived), far(answered), returned


def true_offset(found: ClockOffset, time_ns: int, offset_ns: int, drift_ppm: float) -> float:
    return offset_ns + (time_ns - found.start_ns) * drift_ppm * 1e-6


DELAYS = st.integers(0, 300_000_000)
NOISES = st.floats(0, 50_000_000)


@settings(deadline=None, max_examples=150)
@given(
    offset_ns=st.integers(-(10**18), 10**18),
    drift_ppm=st.floats(-900, 900),
    forward_ns=DELAYS,
    reverse_ns=DELAYS,
    noise_ns=st.tuples(NOISES, NOISES),
    count=st.integers(2, 300),
    seed=st.integers(0, 1 << 30),
)
def test_the_truth_is_within_the_error_whatever_the_delays(
    *,
    offset_ns: int,
    drift_ppm: float,
    forward_ns: int,
    reverse_ns: int,
    noise_ns: tuple[float, float],
    count: int,
    seed: int,
) -> None:
    found = clock_offset(
        *exchanges(
            offset_ns=offset_ns,
            drift_ppm=drift_ppm,
            forward_ns=forward_ns,
            reverse_ns=reverse_ns,
            noise_ns=noise_ns,
            count=count,
            seed=seed,
        )
    )
    assert found is not None
    for share in (0.0, 0.3, 1.0):
        time_ns = int(found.start_ns + share * (found.end_ns - found.start_ns))
        offset, error = found.at(time_ns)
        # A float of 1e18 ns knows 128 ns.
        slack = 1 + abs(offset_ns) * 2e-16 * 4
        assert abs(offset - true_offset(found, time_ns, offset_ns, drift_ppm)) <= error + slack
    assert found.drift_ppm[0] - 0.01 <= drift_ppm <= found.drift_ppm[1] + 0.01


def test_the_error_is_half_of_the_quickest_round_trip() -> None:
    found = clock_offset(
        *exchanges(
            offset_ns=3 * SECOND,
            drift_ppm=40,
            forward_ns=5_000_000,
            reverse_ns=5_000_000,
            noise_ns=(2_000_000, 20_000_000),
            count=2000,
        )
    )
    assert found is not None
    middle = (found.start_ns + found.end_ns) // 2
    offset, error = found.at(middle)
    assert error == pytest.approx(5_000_000, rel=0.1)
    assert offset == pytest.approx(true_offset(found, middle, 3 * SECOND, 40), abs=500_000)
    assert found.error_ns >= error


def test_drift_is_known_better_the_longer_it_was_looked_at() -> None:
    widths = []
    for seconds in (10.0, 1000.0):
        found = clock_offset(
            *exchanges(
                offset_ns=0,
                drift_ppm=40,
                forward_ns=1_000_000,
                reverse_ns=1_000_000,
                noise_ns=(100_000, 100_000),
                count=1000,
                seconds=seconds,
            )
        )
        assert found is not None
        widths.append(found.drift_ppm[1] - found.drift_ppm[0])
    assert widths[1] < widths[0] / 50
    assert widths[1] < 10


def test_a_clock_that_is_set_on_the_way_is_no_line() -> None:
    sent, arrived, answered, returned = exchanges(
        offset_ns=0, drift_ppm=0, forward_ns=10**6, reverse_ns=10**6, noise_ns=(0, 0)
    )
    arrived[100:] += SECOND
    answered[100:] += SECOND
    assert clock_offset(sent, arrived, answered, returned) is None


def test_one_exchange_says_nothing_of_drift() -> None:
    one = np.array([0], dtype=np.int64)
    assert clock_offset(one, one + 5, one + 6, one + 9) is None


def test_nothing_is_said_of_other_times() -> None:
    found = ClockOffset(0, 10, (0.0, 0.0), (2.0, 2.0), (0.0, 0.0))
    assert found.at(5) == (1.0, 1.0)
    with pytest.raises(ValueError, match="outside"):
        found.at(11)
