"""The tests that verdicts are made of, against textbooks and other programs."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from tunnelmark.analysis.testing import (
    Claim,
    OneSided,
    Spread,
    combined,
    deciding,
    holm,
    leans,
    mean_of,
    settle,
    spread,
)


def above(values: list[float], limit: float = 0.0) -> OneSided:
    return OneSided("", spread(values), limit, 1, "difference", "t")


def known(value: float, error: float = 1.0) -> OneSided:
    return OneSided("", Spread(value, error, math.inf, 10), 0.0, 1, "difference", "z")


def test_students_sleep_data() -> None:
    """Student 1908: ten patients, mean gain 1.58 hours, t = 4.06, p = 0.0014 for more sleep."""
    gains = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    test = above(gains)
    assert test.spread.value == pytest.approx(1.58)
    assert test.p_confirm == pytest.approx(0.0014164, abs=1e-6)
    assert test.p_confirm + test.p_reject == pytest.approx(1)
    bounds = test.bounds(0.025)
    assert bounds is not None
    assert bounds[0] == pytest.approx(0.7001142, abs=1e-6)
    assert bounds[1] == pytest.approx(2.4598858, abs=1e-6)


def test_two_one_sided_tests_as_statsmodels_has_them() -> None:
    dice = np.random.default_rng(1)
    one, other = dice.normal(10, 1, 12), dice.normal(10.2, 1, 12)
    own = spread(list(one - other))
    both = Claim(
        "all",
        (
            OneSided("", own, -1.0, 1, "difference", "t"),
            OneSided("", own, 1.0, -1, "difference", "t"),
        ),
    )
    assert both.p_confirm == pytest.approx(ttost_paired(one, other, -1.0, 1.0)[0])


def test_holm_as_statsmodels_has_it() -> None:
    dice = np.random.default_rng(2)
    for _ in range(50):
        p = list(dice.uniform(0, 0.06, 7))
        assert [sure for sure, _ in holm(p, 0.05)] == list(multipletests(p, 0.05, method="holm")[0])


def test_holms_levels_by_hand() -> None:
    found = holm([0.01, 0.04, 0.03, 0.005], 0.05)
    assert [sure for sure, _ in found] == [True, False, False, True]
    assert [level for _, level in found] == [
        pytest.approx(0.05 / 3),
        # Not 0.05: behind the first failure none is held against a looser level.
        pytest.approx(0.025),
        pytest.approx(0.025),
        pytest.approx(0.0125),
    ]


def test_a_family_errs_no_more_than_it_says() -> None:
    """Five true nulls: in how many of 4,000 families any is refuted."""
    p = stats.t.sf(
        (x := np.random.default_rng(3).standard_normal((4000, 5, 6))).mean(axis=2)
        / (x.std(axis=2, ddof=1) / math.sqrt(6)),
        5,
    )
    wrong = [any(sure for sure, _ in holm(list(row), 0.05)) for row in p]
    assert 0.035 <= sum(wrong) / len(wrong) <= 0.06


def test_a_binomial_of_a_textbook() -> None:
    """Fisher's tea: 8 of 8 by guessing has 1 / 256."""
    test = OneSided("", Spread(1.0, None, 0, 4), 0.5, 1, "value", "exact binomial", packets=(8, 8))
    assert test.p_confirm == pytest.approx(1 / 256)
    none = OneSided("", Spread(0, None, 0, 4), 0.01, -1, "value", "", packets=(0, 300))
    assert none.p_confirm == pytest.approx(0.99**300)
    bounds = none.bounds(0.025)
    assert bounds == (0.0, pytest.approx(0.012221, abs=1e-6))
    needed = none.repeats_to_settle(0.025)
    assert needed == 5
    assert 0.99 ** (300 * needed / 4) < 0.025
    few = OneSided("", Spread(0, None, 0, 3), 0.01, -1, "value", "", packets=(0, 3000))
    assert (few.p_confirm, few.bounds(0.025)) == (1.0, None)


def test_a_slope_is_that_of_least_squares() -> None:
    levels = [1.0, 2.0, 4.0, 8.0]
    dice = np.random.default_rng(4)
    groups = [list(dice.normal(3 * level, 1, 5)) for level in levels]
    centre = sum(levels) / 4
    square = sum((level - centre) ** 2 for level in levels)
    found = combined([spread(g) for g in groups], [(level - centre) / square for level in levels])
    wanted = stats.linregress(np.repeat(levels, 5), np.concatenate(groups))
    assert found.value == pytest.approx(wanted.slope)


def test_what_must_all_hold_hangs_on_the_worst_and_what_any_on_the_best() -> None:
    tests = (known(1.0), known(3.0))
    both, any_ = Claim("all", tests), Claim("any", tests)
    assert both.p_confirm == pytest.approx(float(stats.norm.sf(1)))
    assert any_.p_confirm == pytest.approx(2 * float(stats.norm.sf(3)))
    assert deciding(both, rejected=False) == (tests[0], 1)
    assert deciding(any_, rejected=False) == (tests[1], 2)
    assert leans(both)
    assert not leans(Claim("all", (known(1.0), known(-1.0))))
    assert leans(Claim("any", (known(1.0), known(-1.0))))


def test_the_repeats_that_settle_are_enough_in_four_of_five() -> None:
    """Simulated: mean 0.5, scatter 1, decided at 2.5 %."""
    own = OneSided("", Spread(0.5, 1 / math.sqrt(8), 7, 8), 0.0, 1, "difference", "t")
    needed = own.repeats_to_settle(0.025)
    assert needed is not None
    values = np.random.default_rng(5).normal(0.5, 1, (4000, needed))
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / math.sqrt(needed))
    decided = float((t > stats.t.isf(0.025, needed - 1)).mean())
    assert 0.76 <= decided <= 0.86
    assert settle(Claim("all", (own, own)), 0.025) == needed


def test_where_nothing_would_settle_it_says_so() -> None:
    at_the_limit = OneSided("", Spread(0.0, 1.0, 5, 6), 0.0, 1, "difference", "t")
    assert at_the_limit.repeats_to_settle(0.025) is None


def test_a_mean_of_estimates_and_certainty() -> None:
    found = mean_of([Spread(1, 0.1, 4, 5), Spread(3, 0.1, 4, 5)])
    assert (found.value, found.error) == (2, pytest.approx(0.1 / math.sqrt(2)))
    assert found.freedom == pytest.approx(8)
    alike = combined([Spread(1, 0.0, 4, 5), Spread(3, 0.0, math.inf, 1)], [1, -1])
    assert (alike.error, alike.freedom) == (0.0, 4)
