"""The one door: few reported differences are false, real ones are found, intervals agree."""

import math
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from made_results import trial_result
from tunnelmark.analysis.door import (
    Contrast,
    Decision,
    averaged,
    between,
    corrected,
    decide,
    to_baseline,
)
from tunnelmark.analysis.estimate import Estimate, Unit
from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.testing import Spread, spread
from tunnelmark.store.rows import Origin, to_frame
from tunnelmark.study.points import pair_id

RATE = "goodput_bit_s"


def ratio(logs: list[float], metric: str = RATE) -> Contrast:
    return Contrast(metric, spread(logs), "ratio", logarithmic=True, method="t, paired")


def drawn(dice: random.Random, shift: float, scatter: float = 0.01, repeats: int = 6) -> Contrast:
    return ratio([dice.gauss(shift, scatter) for _ in range(repeats)])


def test_few_of_those_reported_are_false_and_the_real_ones_are_reported() -> None:
    dice = random.Random(20261121)  # noqa: S311 - figures, no secret
    false_shares, real = [], 0
    for _ in range(150):
        # Thirty differences that are chance, six of seven standard errors.
        found = decide([drawn(dice, 0.0 if n < 30 else 0.03) for n in range(36)], confidence=0.95)
        reported = [one.p <= 0.05 for one in found]
        false_shares.append(sum(reported[:30]) / max(1, sum(reported)))
        real += sum(one.outcome == "differs" for one in found[30:])
    assert sum(false_shares) / 150 < 0.055
    assert real / 900 > 0.7


@pytest.mark.parametrize("moments", [1, 4])
def test_where_nothing_differs_one_in_twenty_tells_anything(moments: int) -> None:
    dice = random.Random(7)  # noqa: S311 - likewise
    wrong = 0
    for _ in range(300):
        # Scatter far above a relevant difference, so that only the test holds it back.
        found = decide([drawn(dice, 0.0, 0.2) for _ in range(12)], confidence=0.95, moments=moments)
        wrong += any(one.outcome == "differs" for one in found)
    assert wrong / 300 <= 0.08 / moments


@given(st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=6), min_size=1, max_size=8))
def test_interval_and_decision_have_one_level(figures: list[list[float]]) -> None:
    for one in decide([ratio(logs) for logs in figures], confidence=0.95):
        if one.low is None or one.high is None or abs(one.value) < 0.01:
            continue
        assert (one.outcome == "differs") == (one.low > 0 or one.high < 0)
        if abs(one.p - 0.05) > 1e-9:
            assert (one.p <= 0.05) == (one.low > 0 or one.high < 0)


def test_what_is_certain_and_too_small_to_matter_is_not_reported() -> None:
    (tiny,) = decide([ratio([0.001, 0.0011, 0.0009, 0.001, 0.00105])], confidence=0.95)
    assert tiny.p < 0.01
    assert tiny.outcome == "alike"


def test_three_repeats_are_no_part_of_the_family() -> None:
    few = ratio([0.1, 0.1001, 0.0999])
    sure = ratio([0.1, 0.11, 0.09, 0.1])
    alone = decide([sure], confidence=0.95)[0]
    both = decide([sure, *[few] * 50], confidence=0.95)
    assert (both[0].p, both[0].low) == (alone.p, alone.low)
    assert {(one.outcome, one.low, one.to_settle) for one in both[1:]} == {("open", None, 4)}


@pytest.mark.parametrize(("count", "outcome"), [(4, "open"), (8, "differs")])
def test_figures_that_happen_to_be_alike_are_no_certainty(count: int, outcome: str) -> None:
    """Two equal repeats had p = 0; by the sign test n of them have 2 / 2 ** n."""
    (found,) = decide([ratio([0.1] * count)], confidence=0.95)
    assert found.outcome == outcome
    assert found.p == pytest.approx(2 * 0.5**count)
    (none,) = decide([ratio([0.0] * 8)], confidence=0.95)
    assert (none.p, none.outcome) == (1.0, "alike")


def test_two_bring_ups_are_two_figures_however_many_repeats() -> None:
    logs = [0.10, 0.101, 0.099, 0.1, 0.11, 0.111, 0.109, 0.11]
    own = Contrast(
        RATE, spread(logs, [1] * 4 + [2] * 4), "ratio", logarithmic=True, method="t, paired"
    )
    (found,) = decide([own], confidence=0.95)
    assert own.spread.freedom == 1
    assert _half(found) > _half(decide([ratio(logs)], confidence=0.95)[0]) * 5


def test_the_mean_over_points_has_as_many_figures_as_bring_ups() -> None:
    """What a bring-up shifts falls on all of its points: six points are not six proofs."""
    dice = random.Random(3)  # noqa: S311 - likewise
    shifts = [dice.gauss(0, 0.05) for _ in range(3)]
    points = []
    for _ in range(6):
        units = {("", "b", up, 0): 0.1 + shift for up, shift in enumerate(shifts)}
        own = spread(list(units.values()), list(units))
        points.append(
            Estimate(RATE, 3, 0.1, None, None, 0.95, "t on logarithms", spread=own, units=units)
        )
    found = averaged(points)
    assert found is not None
    alone = points[0].spread
    assert alone is not None
    assert (found.freedom, found.error) == (alone.freedom, pytest.approx(alone.error))


def test_a_point_with_one_bring_up_left_adds_no_figures_to_the_mean_of_others() -> None:
    def of(units: Mapping[Unit, float]) -> Estimate:
        own = spread(list(units.values()), list(units))
        return Estimate(RATE, 3, 0.1, None, None, 0.95, "t on logarithms", spread=own, units=units)

    whole = of({("", "b", 1, 0): 0.1, ("", "b", 2, 0): 0.3})
    rest = of({("", "b", 1, repeat): 0.1 + 1e-3 * repeat for repeat in (1, 2, 3, 4)})
    # Two bring-ups, not two of them and four repeats; nobody knows how those of the rest scatter.
    assert [_freedom(whole, rest), _freedom(rest, whole)] == [0, 0]
    # Continued on another computer, the bring-ups of one are one figure.
    computers = of({("a", "", 0, 0): 0.1, ("", "", 0, 0): 0.3})
    assert _freedom(computers, whole) == 0
    # Alike, they stay what they are.
    assert _freedom(rest, rest) == 3


def test_the_mean_of_points_with_many_and_few_bring_ups_is_as_sure_as_the_few_make_it() -> None:
    """By hand: bring-ups shift both points, 0.05 each of eight alone, 0.3 of the two in both."""
    dice = random.Random(7)  # noqa: S311 - likewise
    errors, values = [], []
    for _ in range(4000):
        shifts = [dice.gauss(0, 1) for _ in range(10)]
        points = []
        for count in (10, 2):
            units = {("", "b", up, 0): shift for up, shift in enumerate(shifts[:count])}
            own = spread(list(units.values()), list(units))
            points.append(
                Estimate(RATE, 3, 0.1, None, None, 0.95, "t on logarithms", spread=own, units=units)
            )
        found = averaged(points)
        assert found is not None
        assert found.error is not None
        assert found.freedom == pytest.approx(0.2**2 / (2 * 0.3**4 + 8 * 0.05**4) - 1)
        errors.append(found.error**2)
        values.append(found.value**2)
    assert sum(values) / 4000 == pytest.approx(0.2, rel=0.08)
    assert sum(errors) / 4000 == pytest.approx(0.2, rel=0.2)


def _freedom(*estimates: Estimate) -> float:
    found = averaged(estimates)
    assert found is not None
    return found.freedom


def points(
    figures: Mapping[int, tuple[Sequence[float], Sequence[float]]],
    metric: str = RATE,
    **also: float | None,
) -> list[PointEstimates]:
    """Return the points of a tunnel: by payload its figures, and those of no tunnel beside them."""
    frames = []
    for size, (own, base) in figures.items():
        for tunnel, values in (("wg", own), ("none", base)):
            for repeat, value in enumerate(values, 1):
                made = trial_result(tunnel, size, repeat, {metric: value, **also})
                name = pair_id(made.trial.point)
                frames.append(to_frame(made, origin=Origin("m", "tm0", "", ""), pair_id=name))
    every = point_estimates(pl.concat(frames, how="diagonal_relaxed"), confidence=0.95)
    return [one for one in every if not one.is_baseline]


BASE = (100.0, 101.0, 99.0, 100.5, 99.5, 100.0)
LESS = tuple(0.99 * value for value in BASE)
"""One part in a hundred less."""
DEAD = (0.0, *LESS[1:])


def decided(contrast: Contrast | None) -> Decision:
    assert contrast is not None
    return decide([contrast], confidence=0.95)[0]


def test_two_tunnels_differ_by_what_each_does_to_its_own_baseline() -> None:
    one, other = points({64: (LESS, BASE)}), points({64: ((*LESS[1:], LESS[0]), BASE)})
    found = between(one, other, RATE)
    assert found is not None
    contrast, turned = found
    assert not turned
    assert contrast.logarithmic
    assert contrast.spread.value == pytest.approx(0.0, abs=1e-4)
    errors = [own.differences[RATE].spread for (own,) in (one, other)]
    assert contrast.spread.error == pytest.approx(
        math.hypot(*(own.error or 0.0 for own in errors if own is not None))
    )


@pytest.mark.parametrize("own", [(0.0, 100.0, 100.0), (0.0, *(50.0,) * 7)])
def test_a_ratio_of_means_is_no_logarithm(own: Sequence[float]) -> None:
    """Whether it is one is no question of its interval: few figures have none."""
    beside = (100.0,) * len(own)
    found = points({64: (own, beside)})
    mean = math.fsum(own) / math.fsum(beside) - 1
    assert found[0].differences[RATE].value == pytest.approx(mean)
    assert decided(to_baseline(found, RATE)).value == pytest.approx(mean)


def test_all_points_have_the_scale_of_the_one_with_a_zero() -> None:
    own = points({64: (LESS, BASE), 128: (DEAD, BASE)})
    one = decided(to_baseline(own, RATE))
    ratio_of_dead = math.fsum(DEAD) / math.fsum(BASE)
    assert one.value == pytest.approx((0.99 + ratio_of_dead) / 2 - 1)
    assert not one.contrast.logarithmic


def test_a_tunnel_that_died_in_one_trial_is_compared_over_the_same_points() -> None:
    dying = points({64: (LESS, BASE), 128: (DEAD, BASE)})
    well = points({64: (LESS, BASE), 128: (LESS, BASE)})
    found = between(dying, well, RATE)
    assert found is not None
    contrast, turned = found
    assert not turned
    one = decided(contrast)
    own = decided(to_baseline(dying, RATE)).value
    assert one.value == pytest.approx((1 + own) / 0.99 - 1)
    # The other way round it is the same claim.
    back = between(well, dying, RATE)
    assert back is not None
    assert back[1]
    assert back[0].spread.value == pytest.approx(contrast.spread.value)


@pytest.mark.parametrize("scatter", [0.0, 1.0])
def test_what_two_clocks_cannot_bound_at_one_point_is_not_decided_over_several(
    scatter: float,
) -> None:
    metric = "owd_forward_p50_ns"
    far = ([20e6 + scatter * n for n in range(9)], [2e6 + scatter * 2 * n for n in range(9)])
    own, beside = ([5 * value for value in values] for values in far)
    figures = {64: far, 128: (own, beside)}
    for few in ({64: far}, figures):
        contrast = to_baseline(points(few, metric, clock_error_ns=3e6), metric)
        assert contrast is not None
        assert not contrast.spread.decides
        found = decided(contrast)
        assert (found.outcome, found.low, found.p, found.to_settle) == ("open", None, 1.0, None)
    pair = between(points(figures, metric, clock_error_ns=3e6), points(figures, metric), metric)
    assert pair is not None
    assert not pair[0].spread.decides
    good = to_baseline(points(figures, metric, clock_error_ns=0.1), metric)
    assert decided(good).outcome == "differs"


def test_a_length_on_the_wire_is_certain_after_one() -> None:
    length = Contrast(
        "overhead_bytes", Spread(60.0, 0.0, math.inf, 1), "difference", logarithmic=False, method=""
    )
    (found,) = decide([length], confidence=0.95)
    assert (found.outcome, found.low, found.p) == ("differs", 60.0, 0.0)


def _half(found: Decision) -> float:
    assert found.low is not None
    assert found.high is not None
    return (found.high - found.low) / 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_correction_is_that_of_scipy(p: list[float]) -> None:
    expected = stats.false_discovery_control(p, method="bh")
    assert corrected(p) == pytest.approx(list(expected))


def test_a_report_does_not_wait_for_scipy_stats() -> None:
    script = "import sys, tunnelmark.report.document as d; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
