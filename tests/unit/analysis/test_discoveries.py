"""Which differences are told: few false ones among them, and the real ones."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tunnelmark.analysis.discoveries import discoveries, p_value
from tunnelmark.analysis.estimates import Estimate, difference

METRICS = ("goodput_bit_s", "overhead_bytes")


@given(
    st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=12),
    st.sampled_from(METRICS),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_p_is_that_of_the_paired_t_test(
    pairs: list[tuple[float, float]], metric: str, confidence: float
) -> None:
    found = difference(pairs, metric=metric, confidence=confidence)
    assert found is not None
    p = p_value(found)
    assert p is not None
    scaled = [math.log(a / b) if metric == METRICS[0] else a - b for a, b in pairs]
    spread = max(scaled) - min(scaled)
    if spread < 1e-6:
        return  # rounding decides what scipy says of values that are all alike
    assert p == pytest.approx(stats.ttest_1samp(scaled, 0).pvalue, rel=1e-4, abs=1e-12)
    # The interval and the test are one: p is below 1 - confidence where 0 is outside.
    assert found.low is not None
    assert found.high is not None
    if abs(p - (1 - confidence)) > 1e-6:
        assert (p < 1 - confidence) == (found.low > 0 or found.high < 0)


def test_without_an_interval_nothing_is_told() -> None:
    alone = Estimate("goodput_bit_s", 1, 0.5, None, None, 0.95, "none")
    assert p_value(alone) is None
    assert discoveries([alone, None]) == [False, False]
    assert discoveries([]) == []


def test_what_is_the_same_in_every_repeat_is_told() -> None:
    all_lost = Estimate("loss_forward_ratio", 2, 1.0, 1.0, 1.0, 0.95, "t")
    none_lost = Estimate("loss_forward_ratio", 2, 0.0, 0.0, 0.0, 0.95, "t")
    assert discoveries([all_lost, none_lost]) == [True, False]


def test_few_of_those_told_are_false_and_the_real_ones_are_told() -> None:
    dice = random.Random(20261121)  # noqa: S311 - figures, no secret
    false_shares, real, alone = [], 0, 0
    for _ in range(400):
        # Thirty differences that are chance, six of four standard errors and more.
        found = []
        for number in range(36):
            shift = 0.0 if number < 30 else 0.03
            pairs = [(math.exp(dice.gauss(shift, 0.01)) * 5, 5.0) for _ in range(5)]
            found.append(difference(pairs, metric="goodput_bit_s", confidence=0.95))
        told = discoveries(found)
        false_shares.append(sum(told[:30]) / max(1, sum(told)))
        real += sum(told[30:])
        alone += sum(p <= 0.05 for d in found[:30] if d and (p := p_value(d)) is not None)
    # Uncorrected, five in a hundred of those that are chance would have been told.
    assert 0.04 < alone / 12_000 < 0.06
    assert sum(false_shares) / 400 < 0.055
    assert real / 2400 > 0.7
