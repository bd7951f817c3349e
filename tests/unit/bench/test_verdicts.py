"""A small version of ``make verdicts``, with bounds so loose that chance fails it almost never."""

from dataclasses import replace

import pytest
from scipy import stats
from synthetic import Truth
from verdicts import COVERED, COVERING, PROMISED, SEEN, SILENT, covers, powers, sees, tells

_CHANCE = 1e-4
_ALL = next(one for one in SILENT if one.name == "all of it")


@pytest.mark.slow
def test_where_nothing_differs_a_report_tells_nothing() -> None:
    runs = 100
    hits = sum(tells(_ALL, seed) for seed in range(runs))
    assert stats.binom.sf(hits - 1, runs, PROMISED) > _CHANCE


def test_this_bench_sees_a_difference_that_there_is() -> None:
    large = replace(_ALL, truth=replace(_ALL.truth, effects={("a", "rtt_p50_ns"): 0.5}))
    assert all(tells(large, seed) for seed in range(3))


@pytest.mark.slow
def test_a_run_sees_what_its_power_line_says() -> None:
    runs, scenario = 50, next(iter(powers()))
    hits = sum(sees(scenario, seed) for seed in range(runs))
    assert stats.binom.sf(hits - 1, runs, SEEN[1]) > _CHANCE
    assert stats.binom.cdf(hits, runs, SEEN[0]) > _CHANCE
    nothing = Truth(effects=dict.fromkeys(scenario.truth.effects, 0.0))
    assert sum(sees(replace(scenario, truth=nothing), seed) for seed in range(10)) <= 4


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    scenario = next(one for one in COVERING if one.name == "all of it")
    runs = [covers(scenario, seed)["rates and times"] for seed in range(50)]
    share = sum(held for held, _ in runs) / sum(of for _, of in runs)
    # Points of one run go together: its intervals are worth about two.
    assert COVERED[0] - 0.07 < share < COVERED[1] + 0.03
