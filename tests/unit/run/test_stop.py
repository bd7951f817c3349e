"""The stop rule errs no more often than the study allows, however often it looks."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.metrics import METRICS
from tunnelmark.run.stop import (
    Asked,
    confidence_of_a_look,
    difference_width,
    figure_width,
    looks,
)

_LOSS = Asked("loss_forward_ratio", 0.05, 0.95)
_RTT = Asked("rtt_p50_ns", 0.05, 0.95)


@given(st.integers(1, 50), st.integers(0, 200))
def test_looks_are_fixed_rising_and_before_the_end(least: int, more: int) -> None:
    found = looks(least, least + more)
    assert all(earlier < later for earlier, later in pairwise(found))
    assert all(least <= look < least + more for look in found)
    assert (not more) == (not found)
    assert len(found) <= 4 + 2.5 * math.log2(1 + more)


def test_the_usual_study_looks_five_times() -> None:
    assert looks(3, 10) == (3, 4, 6, 9)


@given(st.floats(0.5, 0.999), st.integers(1, 20))
def test_the_errors_of_all_looks_add_up_to_that_of_the_study(share: float, number: int) -> None:
    each = confidence_of_a_look(share, number)
    assert number * (1 - each) == pytest.approx(1 - share)


def stopped_wrongly(dice: random.Random, confidence: float, *, share: bool) -> bool:
    """Draw repeats until the rule stops; say whether its interval then misses the truth."""
    at = looks(3, 20)
    each = confidence_of_a_look(confidence, len(at)) if share else confidence
    values: list[float] = []
    for look in at:
        values += [dice.lognormvariate(0, 0.03) for _ in range(look - len(values))]
        width = figure_width(values, [1] * look, Asked("goodput_bit_s", 0.03, each))
        if width is not None and width <= 1:
            mean = math.fsum(map(math.log, values)) / look
            return abs(mean) > math.log1p(0.03 * width)
    return False


def test_stopping_when_it_suits_does_not_cost_confidence() -> None:
    dice = random.Random(1)  # noqa: S311 - simulated figures
    wrong = sum(stopped_wrongly(dice, 0.9, share=True) for _ in range(2000)) / 2000
    careless = sum(stopped_wrongly(dice, 0.9, share=False) for _ in range(2000)) / 2000
    assert wrong <= 0.1
    # Without sharing out the error the same rule errs more often: the test can tell.
    assert careless > 2 * wrong
    assert careless > 0.1


@given(
    st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=8),
    st.floats(1e-3, 1e3),
    st.floats(0.6, 0.99),
)
def test_the_width_does_not_depend_on_the_unit(
    values: list[float], factor: float, confidence: float
) -> None:
    asked = Asked("rtt_p50_ns", 0.05, confidence)
    one, other = (
        figure_width([v * f for v in values], [1] * len(values), asked) for f in (1, factor)
    )
    assert one is not None
    assert other == pytest.approx(one, rel=1e-3, abs=1e-6)


def test_the_width_is_that_of_a_ratio_for_rates() -> None:
    # ln 1 and ln 1.1: mean 0.0477, s 0.0674, t(0.975, 1) = 12.706, half 0.6055, e^0.6055 - 1
    width = figure_width([1.0, 1.1], [1, 1], Asked("goodput_bit_s", 0.1, 0.95))
    assert width == pytest.approx(8.32, abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=1))
def test_one_value_has_no_width(values: list[float]) -> None:
    assert figure_width(values, [1], _LOSS) is None
    assert difference_width(values, values, [1], _LOSS) is None
    assert figure_width([], [], _LOSS) is None


def test_a_figure_of_0_is_never_known_to_a_share_of_itself() -> None:
    assert figure_width([0.0, 0.0], [1, 1], _LOSS) == 0.0
    assert figure_width([-1.0, 1.0], [1, 1], _LOSS) == math.inf
    assert figure_width([1e-300, 1e300], [1, 1], _RTT) == math.inf


def test_what_falls_on_both_sides_is_not_in_the_difference() -> None:
    base = [1.0, 2.0, 4.0, 8.0]
    own = [1.1 * value for value in base]
    assert figure_width(own, [1] * 4, _RTT) > 10  # type: ignore[operator]
    assert difference_width(own, base, [1] * 4, _RTT) == pytest.approx(0, abs=1e-9)


def test_the_interval_is_that_of_the_bring_ups_where_there_are_several() -> None:
    dice = random.Random(1)  # noqa: S311 - simulated figures
    ups = [up for up in range(4) for _ in range(5)]
    shifts = [dice.gauss(0, 0.1) for _ in range(4)]
    own = [math.exp(shifts[up] + dice.gauss(0, 0.001)) for up in ups]
    means = [math.fsum(map(math.log, own[5 * up : 5 * up + 5])) / 5 for up in range(4)]
    alone = figure_width([math.exp(mean) for mean in means], [1] * 4, _RTT)
    assert difference_width(own, [1.0] * 20, ups, _RTT) == pytest.approx(alone)
    assert alone > 2 * figure_width(own, [1] * 20, _RTT)  # type: ignore[operator]


def test_a_loss_beside_none_is_known_when_less_is_not_worth_telling() -> None:
    worth = METRICS["loss_forward_ratio"].worth_telling
    asked = replace(_LOSS, least=worth)
    for own, good in (([0.0, worth / 30, 0.0, worth / 30], True), ([0.0, 0.3, 0.0, 0.0], False)):
        width = difference_width(own, [0.0] * 4, [1] * 4, asked)
        assert width is not None
        assert (width <= 1) is good


@pytest.mark.parametrize("nothing", [None, 0.0])
def test_more_repeats_of_what_never_passes_tell_nothing(nothing: float | None) -> None:
    assert difference_width([nothing] * 4, [1.0, 1.1, 0.9, 1.0], [1] * 4, _RTT) == 0
    assert figure_width([nothing] * 4, [1] * 4, _RTT) == 0
    # Lost only at times: what is left decides.
    assert difference_width([nothing, 1.0, 2.0], [1.0] * 3, [1] * 3, _RTT) > 1  # type: ignore[operator]
