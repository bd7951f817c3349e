"""The E-model against figures that the Recommendations publish."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.workloads.emodel import Connection, call, mos, rating


def test_the_defaults_give_what_g_107_says() -> None:
    # ITU-T G.107 (06/2015) clause 7.7: R = 93.2 with all parameters at their defaults.
    assert rating(Connection()) == pytest.approx(93.2, abs=0.05)
    assert mos(rating(Connection())) == pytest.approx(4.41, abs=0.005)


# ITU-T G.107 annex B, table B.1: R at the limits of the categories of user satisfaction.
@pytest.mark.parametrize(
    ("r", "score"), [(90, 4.34), (80, 4.03), (70, 3.60), (60, 3.10), (50, 2.58)]
)
def test_scores_of_annex_b(r: float, score: float) -> None:
    assert mos(r) == pytest.approx(score, abs=0.01)


def test_the_score_has_ends() -> None:
    assert mos(-5) == mos(0) == mos(3) == 1.0
    assert mos(100) == mos(120) == 4.5


def test_an_impairment_is_subtracted_as_it_is() -> None:
    best = rating(Connection())
    assert best - rating(Connection(ie=11)) == pytest.approx(11)
    assert rating(Connection(advantage=10)) - best == pytest.approx(10)


def test_loss_by_hand() -> None:
    # Clause 7.5 with Ie 0, Bpl 4.3 and 2 % random loss: 95 * 2 / (2 + 4.3) = 30.16.
    lost = rating(Connection()) - rating(Connection(ppl_percent=2))
    assert lost == pytest.approx(30.159, abs=0.001)
    # In bursts twice as long as random ones: 95 * 2 / (1 + 4.3).
    lost = rating(Connection()) - rating(Connection(ppl_percent=2, burst_r=2))
    assert lost == pytest.approx(35.849, abs=0.001)


def test_absolute_delay_by_hand() -> None:
    # Clause 7.4, echo-free: nothing to 100 ms; at 200 ms X is 1 and Idd
    # 25 * (2^(1/6) - 3 * (1 + 3^-6)^(1/6) + 2) = 3.04.
    free = rating(Connection())
    assert rating(Connection(ta_ms=100)) == free
    assert free - rating(Connection(ta_ms=200)) == pytest.approx(3.044, abs=0.005)


# Below some 40 ms the model lets the sidetone mask the echo, and R rises a little with the delay.
@given(st.floats(40, 500), st.floats(40, 500), st.floats(0, 0.5), st.floats(0, 0.5))
def test_longer_and_more_lossy_never_sounds_better(
    near: float, far: float, less: float, more: float
) -> None:
    near, far = sorted((near, far))
    less, more = sorted((less, more))
    best = call(near, less, ie=0, bpl=25.1)
    assert rating(call(far, less, ie=0, bpl=25.1)) <= rating(best) + 1e-3
    assert rating(call(near, more, ie=0, bpl=25.1)) <= rating(best) + 1e-6
    assert rating(replace(best, burst_r=2.0)) <= rating(best) + 1e-6
