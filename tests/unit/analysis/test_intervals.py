"""Intervals against textbooks and against simulated truth: 95 % of them must hold it."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from tunnelmark.analysis.grouped import Grouping
from tunnelmark.analysis.testing import combined, spread

EXPERIMENTS = 2000
Array = npt.NDArray[np.float64]


def share_of(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def holding(values: Array, truth: float, in_each: int | None = None) -> float:
    """Return the share of rows whose interval holds the truth; ``in_each``: of a bring-up."""
    count, repeats = values.shape
    group = np.repeat(np.arange(count), repeats)
    up = np.arange(values.size) // (in_each or repeats)
    group_of = np.arange(up[-1] + 1) * count // (up[-1] + 1)
    own = Grouping(group, up, group_of, worker_of=group_of, groups=count)
    found = own.summaries(values.ravel(), np.ones(values.size, dtype=np.bool_))
    half = stats.t.isf(0.025, found.freedom) * found.error
    return float((abs(found.mean - truth) <= half).mean())


def test_students_interval_of_a_textbook() -> None:
    """NIST/SEMATECH e-Handbook, section 1.3.5.2: 195 values, 9.26146 +- 0.00323."""
    raw = np.linspace(-1, 1, 195)
    values = 9.26146 + (raw - raw.mean()) / raw.std(ddof=1) * 0.02278881
    found = spread(list(values))
    assert found.error is not None
    half = float(stats.t.isf(0.025, found.freedom)) * found.error
    assert found.value - half == pytest.approx(9.258242, abs=2e-5)
    assert found.value + half == pytest.approx(9.264679, abs=2e-5)


def test_one_value_has_no_interval() -> None:
    assert spread([3.0]).error is None
    assert spread([3.0, 3.0]).error == 0.0


@pytest.mark.parametrize("repeats", [4, 5, 10, 40])
def test_intervals_of_rates_hold_the_truth(repeats: int) -> None:
    values = np.random.default_rng(repeats).standard_normal((EXPERIMENTS, repeats))
    assert 0.93 <= holding(values, 0.0) <= 0.97


@pytest.mark.parametrize("bring_ups", [2, 3, 5])
@pytest.mark.parametrize("between", [0.0, 0.5, 1.0, 5.0])
def test_intervals_hold_the_truth_however_much_bring_ups_differ(
    bring_ups: int, between: float
) -> None:
    """Repeats taken as independent hold it far less often where bring-ups differ as they do."""
    dice = np.random.default_rng(5)
    ups = np.repeat(dice.normal(0, between, (EXPERIMENTS, bring_ups)), 3, axis=1)
    values = ups + dice.standard_normal((EXPERIMENTS, 3 * bring_ups))
    assert 0.93 <= holding(values, 0.0, in_each=3) <= 0.97
    if between >= 1:
        assert holding(values, 0.0) < 0.9


def test_bring_ups_of_unequal_length_count_the_same() -> None:
    """Kalibera and Jones 2013: the variance is that of the bring-ups' means."""
    found = spread([1.0, 3.0, 10.0, 12.0, 11.0], [1, 1, 2, 2, 2])
    assert (found.value, found.freedom, found.bring_ups, found.repeats) == (6.5, 1, 2, 5)
    assert found.error == pytest.approx(np.std([2.0, 11.0], ddof=1) / math.sqrt(2))


def test_intervals_of_skewed_shares() -> None:
    """Student's t of a loss that is skewed: 40 repeats need no bootstrap."""
    values = np.random.default_rng(2).beta(2, 18, (EXPERIMENTS, 40))
    assert 0.92 <= holding(values, 0.1) <= 0.97


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
