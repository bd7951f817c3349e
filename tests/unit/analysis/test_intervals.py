"""Intervals against textbooks and against simulated truth: 95 % of them must hold it."""

import math

import numpy as np
import pytest
from scipy import stats

from tunnelmark.analysis.estimates import estimate
from tunnelmark.analysis.intervals import (
    mean_bootstrap,
    mean_in_time,
    mean_t,
    median_exact,
    share_exact,
)
from tunnelmark.analysis.testing import combined, spread

EXPERIMENTS = 2000


def share_of(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def test_students_interval_of_a_textbook() -> None:
    """NIST/SEMATECH e-Handbook, section 1.3.5.2: 195 values, 9.26146 +- 0.00323."""
    half = float(stats.t.ppf(0.975, 194)) * 0.02278881 / math.sqrt(195)
    # As many values with just that mean and standard deviation.
    raw = np.linspace(-1, 1, 195)
    values = 9.26146 + (raw - raw.mean()) / raw.std(ddof=1) * 0.02278881
    found = mean_t(list(values), 0.95)
    assert found.low == pytest.approx(9.26146 - half, abs=1e-9)
    assert (found.low, found.high) == (
        pytest.approx(9.258242, abs=2e-5),
        pytest.approx(9.264679, abs=2e-5),
    )


def test_one_value_has_no_interval() -> None:
    assert mean_t([3.0], 0.95).low is None
    assert mean_bootstrap([3.0, 4.0], 0.95, seed=1).low is None
    assert mean_in_time([1.0] * 19, 0.95).low is None
    assert median_exact([1.0, 2.0, 3.0], 0.95).low is None


def test_no_loss_of_300_packets_is_less_than_1_22_percent() -> None:
    """Clopper and Pearson: 1 - 0.025 ** (1 / 300)."""
    found = share_exact(0, 300, 0.95)
    assert (found.low, found.high) == (0.0, pytest.approx(0.012221, abs=1e-6))
    # Agresti and Coull 1998: 2 of 10 has (0.025, 0.556).
    found = share_exact(2, 10, 0.95)
    assert (found.low, found.high) == (
        pytest.approx(0.0252, abs=1e-4),
        pytest.approx(0.5561, abs=1e-4),
    )


def test_a_share_needs_its_whole() -> None:
    with pytest.raises(ValueError, match="hits are 3, must be 0 to 2 of at least 1"):
        share_exact(3, 2, 0.95)


def test_the_median_of_ten_lies_between_the_second_and_the_ninth() -> None:
    """Conover: the chance of 2 or fewer below is 0.0547, of 1 or fewer 0.0107."""
    found = median_exact([float(v) for v in range(1, 11)], 0.95)
    assert (found.value, found.low, found.high) == (5.5, 2.0, 9.0)


def test_the_interval_of_the_mean_of_a_series_in_time_is_not_too_narrow() -> None:
    """Values that depend on their neighbours: a plain interval holds the truth in a third."""
    dice = np.random.default_rng(7)
    noise = dice.standard_normal((EXPERIMENTS // 2, 400))
    series = np.empty_like(noise)
    # Started as it goes on, so that every value has the same law.
    series[:, 0] = noise[:, 0] / math.sqrt(1 - 0.8**2)
    for at in range(1, 400):
        series[:, at] = 0.8 * series[:, at - 1] + noise[:, at]
    rows = [list(row) for row in series]
    batched = share_of([_holds(mean_in_time(row, 0.95), 0.0) for row in rows])
    plain = share_of([_holds(mean_t(row, 0.95), 0.0) for row in rows])
    assert 0.91 < batched < 0.97
    assert plain < 0.55


@pytest.mark.parametrize("repeats", [3, 5, 10, 40])
def test_intervals_of_rates_hold_the_truth(repeats: int) -> None:
    dice = np.random.default_rng(repeats)
    values = 8e6 * np.exp(0.05 * dice.standard_normal((EXPERIMENTS, repeats)))
    hits = []
    for row in values:
        found = estimate(list(row), metric="goodput_bit_s", confidence=0.95)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits.append(found.low <= 8e6 <= found.high)
    assert 0.93 <= share_of(hits) <= 0.97


def test_intervals_of_loss_hold_the_truth_and_stay_above_nothing() -> None:
    """Skewed shares, 40 repeats: the bootstrap's."""
    dice = np.random.default_rng(2)
    values = dice.beta(2, 18, (EXPERIMENTS, 40))
    hits = []
    for row in values[:250]:  # ten thousand resamples each
        found = estimate(list(row), metric="loss_forward_ratio", confidence=0.95)
        assert found is not None
        assert found.method == "bootstrap, BCa"
        assert found.low is not None
        assert found.high is not None
        assert found.low > 0
        hits.append(found.low <= 0.1 <= found.high)
    assert 0.91 <= share_of(hits) <= 0.98


def test_the_same_figures_always_give_the_same_bootstrap() -> None:
    values = list(np.random.default_rng(3).beta(1, 9, 40))
    assert mean_bootstrap(values, 0.95, seed=1) == mean_bootstrap(values, 0.95, seed=1)


def test_differences_of_groups_that_scatter_differently_hold_the_truth() -> None:
    """Welch and Satterthwaite, by the code that verdicts use."""
    dice = np.random.default_rng(11)
    one = dice.normal(10, 1, (EXPERIMENTS, 4))
    other = dice.normal(7, 5, (EXPERIMENTS, 9))
    hits = []
    for a, b in zip(one, other, strict=True):
        found = combined([spread(list(a)), spread(list(b))], [1, -1])
        assert found.error is not None
        half = float(stats.t.isf(0.025, found.freedom)) * found.error
        hits.append(abs(found.value - 3) <= half)
    assert 0.93 <= share_of(hits) <= 0.97


def test_welch_as_scipy_has_it() -> None:
    one, other = [20.1, 22.3, 19.8, 24.0], [15.2, 15.9, 15.1, 15.5, 15.0]
    found = combined([spread(one), spread(other)], [1, -1])
    wanted = stats.ttest_ind(one, other, equal_var=False)
    assert found.error is not None
    assert found.value / found.error == pytest.approx(wanted.statistic)
    assert found.freedom == pytest.approx(wanted.df)


def test_medians_hold_the_truth_whatever_the_law() -> None:
    dice = np.random.default_rng(12)
    values = dice.exponential(1, (EXPERIMENTS, 20))
    hits = [_holds(median_exact(list(row), 0.95), math.log(2)) for row in values]
    assert 0.93 <= share_of(hits) <= 0.97


def _holds(found: object, truth: float) -> bool:
    low, high = found.low, found.high  # type: ignore[attr-defined]
    return bool(low <= truth <= high)
