"""Figures from several computers: intervals cover what lies between them, a report says how far."""

from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats
from synthetic import DRAWN, Design, Made, Truth, simulate
from verdicts import COVERED, FIGURES, HANDED_ON, covers, covers_figures

from tunnelmark.analysis.door import to_baseline
from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.testing import spread
from tunnelmark.analysis.workers import apart
from tunnelmark.report.summary import summarise

_APART = next(one for one in FIGURES if one.truth.workers)
_METRIC = "rtt_p50_ns"


@pytest.mark.slow
def test_figures_of_computers_that_differ_hold_the_truth_as_often_as_they_say() -> None:
    found = [covers_figures(_APART, seed) for seed in range(60)]
    # The three metrics of a run are drawn each by itself; its points are not.
    assert sum(held for held, _ in found) / sum(of for _, of in found) > COVERED[0] - 0.07


@pytest.mark.slow
def test_differences_of_bring_ups_on_several_computers_hold_the_truth() -> None:
    found = [covers(HANDED_ON, seed)["rates and times"] for seed in range(60)]
    assert sum(held for held, _ in found) / sum(of for _, of in found) > COVERED[0] - 0.07


def test_the_interval_is_that_of_the_means_of_computers() -> None:
    names = [(computer, "b", up) for computer in "xyz" for up in (1, 2) for _ in range(2)]
    values = [1.0, 2.0, 3.0, 4.0, 2.0, 2.0, 3.0, 3.0, 9.0, 9.0, 8.0, 8.0]
    found = spread(values, names, [computer for computer, *_ in names])
    means = [2.5, 2.5, 8.5]
    assert found.value == pytest.approx(4.5)
    assert found.error == pytest.approx(stats.sem(means))
    assert (found.freedom, found.workers, found.bring_ups, found.repeats) == (2, 3, 6, 12)
    assert found.independent == 3


def test_one_computer_has_the_figures_of_its_bring_ups() -> None:
    values = [1.0, 2.0, 3.0, 5.0, 8.0, 9.0]
    ups = [1, 1, 2, 2, 3, 3]
    assert spread(values, ups) == spread(values, ups, ["x"] * len(ups))
    found = spread(values, ups)
    means = [1.5, 4.0, 8.5]
    assert found.value == pytest.approx(sum(means) / 3)
    assert found.error == pytest.approx(stats.sem(means))
    assert (found.freedom, found.workers, found.independent) == (2, 1, 3)


def _points(made: Made, **columns: str) -> tuple[PointEstimates, ...]:
    trials = made.trials().with_columns(**{name: pl.lit(v) for name, v in columns.items()})
    return point_estimates(trials, confidence=0.95)


def _ends(points: tuple[PointEstimates, ...]) -> list[object]:
    return [
        (p.point_id, e.metric, e.value, e.low, e.high)
        for p in points
        for e in (*p.estimates.values(), *p.differences.values())
    ]


def test_workers_of_one_computer_are_one_and_a_simulation_knows_none() -> None:
    made = simulate(_APART.design, _APART.truth, 1)
    alone = _ends(_points(made, worker="lab"))
    assert _ends(_points(made)) != alone
    in_turn = made.trials().with_columns(worker="lab/" + pl.col("worker"))
    assert _ends(point_estimates(in_turn, confidence=0.95)) == alone
    assert _ends(_points(made, stratum="simulation")) == alone


def test_the_mean_over_points_has_the_computers_as_units() -> None:
    made = simulate(HANDED_ON.design, HANDED_ON.truth, 3)
    own = [p for p in point_estimates(made.trials(), confidence=0.95) if p.tunnel == "a"]
    assert {p.differences[_METRIC].workers for p in own} == {3}
    units = own[0].differences[_METRIC].units
    assert sorted(units) == [(f"worker{number}", "", 0, 0) for number in range(3)]
    contrast = to_baseline(own, _METRIC)
    assert contrast is not None
    assert (contrast.spread.freedom, contrast.spread.workers) == (2, 3)
    spreads = [p.differences[_METRIC].spread for p in own]
    mean = sum(spread.value for spread in spreads if spread is not None) / len(own)
    assert contrast.spread.value == pytest.approx(mean)


def test_a_trial_and_its_baseline_on_two_computers_are_no_pair() -> None:
    made = simulate(Design(tunnels=("a",)), Truth(), 1)
    moved = made.trials().with_columns(
        worker=pl.when("is_baseline").then(pl.lit("x")).otherwise(pl.lit("y"))
    )
    assert not any(p.differences for p in point_estimates(moved, confidence=0.95))


def test_how_far_computers_differ_is_seen_where_most_of_them_measured_the_same() -> None:
    design = Design(tunnels=("a", "b", "c"), workers=3, links=2)
    made = simulate(design, Truth(workers=0.2, repeats=0.0), 5)
    (one,) = apart(made.trials(), [_METRIC])
    own = made.trials().filter(pl.col("is_baseline"), link=one.link, workload=one.workload)
    means = own.group_by("worker").agg(pl.col(_METRIC).log().mean().exp()).sort(_METRIC)
    assert (one.computers, one.lowest, one.highest) == (3, means["worker"][0], means["worker"][2])
    assert one.value == pytest.approx(means[_METRIC][2] / means[_METRIC][0] - 1)
    assert one.exceeds(one.value / 2)
    assert one.exceeds(1 / (1 + one.value / 2) - 1)
    assert not one.exceeds(2 * one.value)
    assert not one.exceeds(-1.0), "nothing comes through on any computer"
    assert apart(made.trials().with_columns(worker=pl.lit("x")), [*DRAWN]) == ()


def test_a_report_says_how_far_computers_differ_and_which_differences_are_smaller() -> None:
    effects = {("a", _METRIC): 0.5, ("b", _METRIC): 0.001}
    design = Design(tunnels=("a", "b"), payloads_bytes=(64,), workers=2)
    made = simulate(design, Truth(effects, workers=0.05, repeats=0.001), 2)
    found = [one for one in summarise(made).findings if "computer" in one]
    (seen,) = apart(made.trials(), [_METRIC])
    assert found[0].startswith("2 computers measured none over link 0, udp_echo")
    assert f"differs by {100 * seen.value:.1f}" in found[0]
    assert f"highest on {seen.highest}, lowest on {seen.lowest}" in found[0]
    assert found[1].startswith("At 1 of 2 points (b over link 0, udp_echo")
    assert found[1].endswith(
        ") the effect is smaller than the difference between computers, so it may not hold on "
        "another computer."
    )
    assert found[2].startswith("Each tunnel was measured on one computer over each link")
    one = simulate(replace(design, workers=1), Truth(effects, repeats=0.001), 2)
    assert not any("computer" in sentence for sentence in summarise(one).findings)


def test_a_synthetic_run_without_a_worker_effect_is_what_it_was() -> None:
    design = Design(bring_ups=4)
    one, three = (simulate(replace(design, workers=n), Truth(bring_ups=0.02), 7) for n in (1, 3))
    assert_frame_equal(one.trials().drop("worker"), three.trials().drop("worker"))
    assert three.trials()["worker"].n_unique() == 2
