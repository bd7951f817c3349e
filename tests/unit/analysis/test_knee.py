"""Bends of curves and correlations, against known truth."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tunnelmark.analysis.knee import knee, rank_correlation

LOADS = np.repeat(np.arange(1.0, 11.0), 3)


def test_a_bend_is_found_where_it_is() -> None:
    """Throughput follows the load up to 6.3 and stays there."""
    noise = np.random.default_rng(1).normal(0, 0.05, len(LOADS))
    found = knee(list(LOADS), list(np.minimum(LOADS, 6.3) + noise), confidence=0.95, worth=0.01)
    assert found is not None
    assert found.low < 6.3 < found.high
    assert found.high - found.low < 0.3
    assert found.slope_before == pytest.approx(1, abs=0.05)
    assert found.slope_after == pytest.approx(0, abs=0.05)
    assert found.p == pytest.approx(1 / 500)


def test_the_unit_of_the_load_does_not_matter() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, len(LOADS))
    figures = np.minimum(LOADS, 6.3) + noise
    plain = knee(list(LOADS), list(figures), confidence=0.95, worth=0.01)
    bits = knee(list(LOADS * 1e6), list(figures * 1e6), confidence=0.95, worth=1e4)
    assert plain is not None
    assert bits is not None
    assert bits.at == pytest.approx(plain.at * 1e6)
    assert bits.slope_before == pytest.approx(plain.slope_before)
    assert bits.p == plain.p


def test_intervals_of_a_bend_hold_the_truth() -> None:
    dice = np.random.default_rng(2)
    hits = []
    for _ in range(300):
        figures = np.minimum(LOADS, 5.7) + dice.normal(0, 0.2, len(LOADS))
        found = knee(list(LOADS), list(figures), confidence=0.95, worth=0.01)
        assert found is not None
        hits.append(found.low <= 5.7 <= found.high)
    assert 0.91 <= sum(hits) / len(hits) <= 0.99


def test_a_straight_line_is_called_bent_once_in_twenty() -> None:
    dice = np.random.default_rng(3)
    called = 0
    for _ in range(300):
        found = knee(
            list(LOADS), list(LOADS + dice.normal(0, 1, len(LOADS))), confidence=0.95, worth=0.1
        )
        assert found is not None
        called += found.p <= 0.05
    assert called / 300 <= 0.09


@pytest.mark.parametrize("scatter", [0.0, 1e-9, 1e-4])
def test_a_straight_line_of_exact_figures_is_not_bent(scatter: float) -> None:
    """Goodput without a tunnel is what was offered, but for rounding: nothing in it matters."""
    sizes = np.repeat([64.0, 512, 1372, 1420, 1452, 1472, 1500], 5)
    dice = np.random.default_rng(4)
    rounded = sizes * 800.0 * (1 + 1e-5 * np.sin(sizes)) * (1 + scatter * dice.normal(size=35))
    found = knee(list(sizes), list(rounded), confidence=0.95, worth=0.01 * 800 * 1100)
    assert found is not None
    assert not found.matters


@pytest.mark.parametrize("scatter", [1e-4, 0.03])
@pytest.mark.parametrize("curve", [np.sqrt, np.square, lambda x: x / (2 + x), np.log])
def test_a_smooth_curve_is_not_bent(curve: Callable[..., Any], scatter: float) -> None:
    called = 0
    for seed in range(4):
        dice = np.random.default_rng(seed)
        figures = curve(LOADS) * (1 + scatter * dice.normal(size=len(LOADS)))
        worth = 0.01 * float(figures.mean())
        found = knee(list(LOADS), list(figures), confidence=0.95, worth=worth)
        assert found is not None
        called += found.p <= 0.05 and found.matters
    assert called <= 1


def test_a_bend_that_matters_says_so() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, len(LOADS))
    found = knee(list(LOADS), list(np.minimum(LOADS, 6.3) + noise), confidence=0.95, worth=0.05)
    assert found is not None
    assert found.matters


def test_too_little_gives_no_bend() -> None:
    assert knee([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 2.0, 2.0], confidence=0.95, worth=0.01) is None
    assert knee(list(LOADS), list(LOADS * 2 + 1), confidence=0.95, worth=0.01) is None
    assert knee(list(LOADS), [3.0] * len(LOADS), confidence=0.95, worth=0.01) is None


def test_rank_correlation_of_a_textbook() -> None:
    """Ten pupils' marks in two subjects, Spearman's 1 - 6 * sum(d^2) / (n (n^2 - 1))."""
    one = [56.0, 75, 45, 71, 62, 64, 58, 80, 76, 61]
    other = [66.0, 70, 40, 60, 65, 56, 59, 77, 67, 63]
    ranks = stats.rankdata(one) - stats.rankdata(other)
    found = rank_correlation(one, other, confidence=0.95)
    assert found is not None
    assert found.rho == pytest.approx(1 - 6 * float(ranks @ ranks) / (10 * 99))
    assert found.rho == pytest.approx(0.67, abs=0.005)
    assert found.low == pytest.approx(-0.0046, abs=1e-4)
    assert found.high == pytest.approx(0.9269, abs=1e-4)


def test_a_perfect_order_and_a_constant() -> None:
    found = rank_correlation([1.0, 2, 3, 4, 5], [2.0, 3, 5, 8, 9], confidence=0.95)
    assert found is not None
    assert found.rho == pytest.approx(1)
    # Two of the 120 orders are perfect, and that is all that five points can show.
    assert found.p == pytest.approx(2 / 120)
    assert found.low < 0.9
    assert found.high == 1
    turned = rank_correlation([1.0, 2, 3, 4, 5], [9.0, 8, 5, 3, 2], confidence=0.95)
    assert turned is not None
    assert (turned.low, turned.high) == pytest.approx((-1, -found.low))
    ties = rank_correlation([1.0, 1, 1, 1, 2], [3.0, 3, 3, 3, 5], confidence=0.95)
    assert ties is not None
    assert ties.p == pytest.approx(2 / 5)
    assert rank_correlation([1.0] * 6, [1.0, 2, 3, 4, 5, 6], confidence=0.95) is None


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        ([1.0, 2, 3, 4, 5], [0.0, 0, 0.01, 0.02, 0.03], 2 / 60),
        # Two that are alike on each side, not the same two: 4 of the 120 orders look the same.
        ([1.0, 1, 2, 3, 4], [0.0, 1, 2, 2, 3], 2 * 4 / 120),
    ],
)
def test_figures_that_are_alike_leave_fewer_orders(
    one: list[float], other: list[float], p: float
) -> None:
    for pair in ((one, other), (other, one)):
        found = rank_correlation(*pair, confidence=0.95)
        assert found is not None
        assert found.p == pytest.approx(p)


def test_many_points_in_order() -> None:
    found = rank_correlation(list(range(200)), list(range(200)), confidence=0.95)
    assert found is not None
    assert found.p == pytest.approx(0, abs=1e-300)


def test_intervals_of_a_correlation_hold_the_truth() -> None:
    """Normal pairs with r = 0.6: rho is 6 / pi * asin(r / 2)."""
    dice = np.random.default_rng(4)
    truth = 6 / np.pi * np.arcsin(0.3)
    hits = []
    for _ in range(1000):
        one = dice.standard_normal(30)
        other = 0.6 * one + 0.8 * dice.standard_normal(30)
        found = rank_correlation(list(one), list(other), confidence=0.95)
        assert found is not None
        hits.append(found.low <= truth <= found.high)
    assert 0.93 <= sum(hits) / len(hits) <= 0.98
