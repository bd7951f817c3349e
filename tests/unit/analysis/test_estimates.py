"""Estimates against known answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_results import trial_result, write
from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.delays import ecdf
from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.strata import set_apart
from tunnelmark.analysis.testing import OneSided, spread
from tunnelmark.model.block import Stratum
from tunnelmark.store import open_result
from tunnelmark.store.rows import Origin, to_frame
from tunnelmark.study.points import pair_id


def table(figures: Mapping[tuple[str, int], Sequence[float | None]], metric: str) -> pl.DataFrame:
    """Return trials of (tunnel, bring-up) with one figure a repeat; None: nothing of it came."""
    count: dict[str, int] = {}
    frames = []
    for (tunnel, up), values in figures.items():
        for value in values:
            count[tunnel] = count.get(tunnel, 0) + 1
            made = trial_result(tunnel, 64, count[tunnel], {metric: value})
            made = replace(made, trial=replace(made.trial, bring_up=up))
            own = pair_id(made.trial.point)
            frames.append(to_frame(made, origin=Origin("made", "tm0", "", ""), pair_id=own))
    return pl.concat(frames, how="diagonal_relaxed")


def estimated(
    figures: Mapping[tuple[str, int], Sequence[float | None]], metric: str
) -> PointEstimates:
    found = point_estimates(table(figures, metric), confidence=0.95)
    return next(p for p in found if not p.is_baseline)


def test_the_interval_of_a_mean_is_student_s() -> None:
    # Student 1908: the additional hours of sleep by the second drug; mean 2.33, s 2.002,
    # t(0.975, 9) = 2.262, half width 1.432.
    hours = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = estimated({("wg", 1): hours}, "loss_forward_ratio").estimates["loss_forward_ratio"]
    assert found.low is not None
    assert found.value == pytest.approx(2.33)
    assert found.value - found.low == pytest.approx(1.432, abs=0.001)


def test_a_paired_difference_is_student_s() -> None:
    # The same paper: the mean difference of both drugs is 1.58 hours, t = 4.06.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    own = estimated({("wg", 1): second, ("none", 1): first}, "loss_forward_ratio")
    found = own.differences["loss_forward_ratio"]
    assert found.low is not None
    assert found.value == pytest.approx(1.58)
    assert found.low == pytest.approx(0.700, abs=0.001)


def test_a_point_has_the_load_of_the_baseline_in_its_block() -> None:
    figures = {("wg", 1): [1e6], ("none", 1): [1e6]}
    own = table(figures, "rtt_p50_ns")
    label = pl.when(pl.col("is_baseline")).then(pl.lit("none 5 clients")).otherwise("tunnel")
    many = own.with_columns(
        label.alias("tunnel"),
        pl.col("block_id") + "-many",
        pl.col("point_id") + "-many",
    )
    found = point_estimates(pl.concat([own, many]), confidence=0.95)
    assert sorted(p.load for p in found) == ["", "", "5 clients", "5 clients"]


def test_intervals_are_of_bring_ups_and_say_which_level_scatters() -> None:
    figures = {
        (tunnel, up): [level * (10 + shift + n / 1000) for n in range(3)]
        for tunnel, level, moves in (("none", 1e6, 0), ("wg", 2e6, 1))
        for up, shift in ((1, 0.0), (2, 0.5 * moves), (3, 1.0 * moves))
    }
    found = estimated(figures, "rtt_p50_ns").differences["rtt_p50_ns"]
    assert (found.n, found.bring_ups) == (9, 3)
    assert found.between is not None
    assert found.between > 0.99
    # Student's t of three means, by hand.
    ratios = [math.log(2 * (10 + shift) / 10) for shift in (0.0, 0.5, 1.0)]
    half = 4.3027 * float(np.std(ratios, ddof=1)) / math.sqrt(3)
    assert found.high is not None
    assert math.log1p(found.high) == pytest.approx(np.mean(ratios) + half, rel=1e-3)


def test_baselines_of_different_blocks_are_not_independent_repeats() -> None:
    """None stands in every tunnel's block: three blocks are three figures, not nine."""
    frames = []
    for block, level in (("b1", 1.0), ("b2", 1.1), ("b3", 1.2)):
        for repeat in (1, 2, 3):
            made = trial_result("none", 64, repeat, {"rtt_p50_ns": level + repeat / 1e6})
            made = replace(made, trial=replace(made.trial, block_id=block))
            frames.append(to_frame(made, origin=Origin("m", "tm0", "", ""), pair_id="p"))
    (found,) = point_estimates(pl.concat(frames), confidence=0.95)
    own = found.estimates["rtt_p50_ns"]
    assert (own.n, own.bring_ups) == (9, 3)
    assert own.spread is not None
    assert own.spread.freedom == 2


def test_one_dead_trial_does_not_take_the_difference_away() -> None:
    """A 0 has no logarithm: the ratio of the means stands in, with its interval."""
    own = estimated(
        {("wg", 1): [8e6, 8.1e6, 0.0, 7.9e6, 8e6], ("none", 1): [8e6] * 5}, "goodput_bit_s"
    )
    found = own.differences["goodput_bit_s"]
    assert found.method == "t of a ratio of means"
    assert found.value == pytest.approx(-0.2)
    assert found.low is not None
    assert found.low < -0.5
    assert (own.dead, own.broken) == (1, False)


def test_what_never_carried_anything_is_broken_and_no_gap() -> None:
    own = estimated({("wg", 1): [1.0] * 4, ("none", 1): [0.0] * 4}, "loss_forward_ratio")
    assert own.broken
    assert own.estimates["loss_forward_ratio"].value == 1.0
    assert "rtt_p50_ns" not in own.estimates


def test_fewer_than_four_repeats_have_no_interval_and_alike_ones_no_certainty() -> None:
    few = estimated({("wg", 1): [1e6, 2e6, 3e6]}, "rtt_p50_ns").estimates["rtt_p50_ns"]
    assert (few.n, few.low, few.method) == (3, None, "none")
    alike = estimated({("wg", 1): [5.0] * 4}, "tcp_retransmits_per_s")
    assert alike.estimates["tcp_retransmits_per_s"].low is None
    length = estimated({("wg", 1): [60.0]}, "overhead_bytes").estimates["overhead_bytes"]
    assert (length.low, length.high) == (60.0, 60.0)


def test_times_and_rates_of_a_model_that_are_alike_are_certain_and_losses_are_not() -> None:
    def simulated(metric: str, own: float, base: float) -> PointEstimates:
        rows = table({("wg", 1): [own] * 2, ("none", 1): [base] * 2}, metric)
        found = point_estimates(
            rows.with_columns(stratum=pl.lit(Stratum.SIMULATION.value)), confidence=0.95
        )
        return next(point for point in found if not point.is_baseline)

    change = simulated("rtt_p50_ns", 11e6, 10e6).differences["rtt_p50_ns"]
    assert change.low == change.high == pytest.approx(0.1)
    assert change.spread is not None
    assert change.spread.certain
    cpu = simulated("cpu_device_client_ratio", 1.0, 0.25).differences["cpu_device_client_ratio"]
    assert (cpu.low, cpu.high) == (0.75, 0.75), "a full CPU is full in each repeat"
    loss = simulated("loss_forward_ratio", 0.0, 0.0).differences["loss_forward_ratio"]
    assert loss.low is None
    assert loss.spread is not None
    assert not loss.spread.certain


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=9
    )
)
def test_all_together_is_what_each_alone_comes_to(repeats: list[tuple[int, float, float]]) -> None:
    """The grouped operations against the one-point code that hypotheses use."""
    ups = [up for up, _, _ in repeats]
    figures: dict[tuple[str, int], list[float | None]] = {}
    order = sorted(range(len(repeats)), key=lambda i: ups[i])
    for i in order:
        figures.setdefault(("wg", ups[i]), []).append(repeats[i][1])
    for i in order:
        figures.setdefault(("none", ups[i]), []).append(repeats[i][2])
    found = estimated(figures, "rtt_p50_ns").differences["rtt_p50_ns"]
    logs = [math.log(repeats[i][1] / repeats[i][2]) for i in order]
    wanted = spread(logs, [ups[i] for i in order])
    assert found.spread is not None
    assert found.spread.value == pytest.approx(wanted.value, rel=1e-9, abs=1e-12)
    assert (found.spread.freedom, found.spread.bring_ups) == (wanted.freedom, wanted.bring_ups)
    if wanted.error is None:
        assert found.spread.error is None
    else:
        assert found.spread.error == pytest.approx(wanted.error, rel=1e-6, abs=1e-9)


def test_a_metric_that_is_newer_than_the_result_is_missing(tmp_path: Path) -> None:
    trials = open_result(
        write(tmp_path, [trial_result("none", 64, 1, {"rtt_p50_ns": 1e6})])
    ).trials()
    (found,) = point_estimates(trials.drop("goodput_bit_s"), confidence=0.95)
    assert "goodput_bit_s" not in found.estimates
    assert found.estimates["rtt_p50_ns"].value == pytest.approx(1e6)


def test_invalid_trials_are_counted_and_enter_nothing(tmp_path: Path) -> None:
    results = [
        trial_result("openvpn", 1000, repeat, {"rtt_p50_ns": 2e6, "goodput_bit_s": 1e6})
        for repeat in (1, 2, 3)
    ]
    results += [trial_result("openvpn", 1000, 4, {"rtt_p50_ns": 9e9}, valid=False)]
    results += [trial_result("none", 1000, repeat, {"rtt_p50_ns": 1e6}) for repeat in (1, 2, 3)]
    trials = open_result(write(tmp_path, results)).trials()
    baseline, tunnel = point_estimates(trials, confidence=0.95)
    assert (tunnel.valid, tunnel.invalid) == (3, 1)
    assert tunnel.estimates["rtt_p50_ns"].value == pytest.approx(2e6)
    assert tunnel.differences["rtt_p50_ns"].value == pytest.approx(1.0)
    assert baseline.is_baseline
    assert not baseline.differences


def test_a_pair_needs_both_halves(tmp_path: Path) -> None:
    results = [
        trial_result("openvpn", 1000, 1, {"rtt_p50_ns": 3e6}),
        trial_result("openvpn", 1000, 2, {"rtt_p50_ns": 4e6}),
        trial_result("none", 1000, 2, {"rtt_p50_ns": 2e6}),
    ]
    trials = open_result(write(tmp_path, results)).trials()
    tunnel = next(p for p in point_estimates(trials, confidence=0.95) if not p.is_baseline)
    assert tunnel.differences["rtt_p50_ns"].n == 1
    assert tunnel.differences["rtt_p50_ns"].value == pytest.approx(1.0)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=2000))
def test_a_distribution_rises_from_the_smallest_to_one(values: list[int]) -> None:
    delays, shares = ecdf([np.array(values, dtype=np.int64)], len(values))
    assert delays[0] == min(values) / 1e6
    assert delays[-1] == max(values) / 1e6
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert math.isclose(shares[0], 1 / len(values))


def test_what_was_lost_counts_in_a_distribution() -> None:
    assert ecdf([np.array([1_000_000, 2_000_000], dtype=np.int64)], 4) == ([1.0, 2.0], [0.25, 0.5])


def by_two_clocks(
    own: Sequence[float], beside: Sequence[float], metric: str, **errors: float
) -> PointEstimates:
    """Trials of a tunnel and its baseline whose figures may be off by what two clocks may be."""
    frame = table({("wg", 1): own, ("none", 1): beside}, metric)
    frame = frame.with_columns(**{name: pl.lit(value) for name, value in errors.items()})
    return next(p for p in point_estimates(frame, confidence=0.95) if not p.is_baseline)


def test_the_error_of_two_clocks_widens_the_interval_and_no_repeat_lessens_it() -> None:
    delays = [19e6, 20e6, 20e6, 21e6]
    for times in (1, 25):
        own, beside = delays * times, [value / 2 for value in delays] * times
        name = "owd_forward_p50_ns"
        plain = by_two_clocks(own, beside, name).estimates[name]
        found = by_two_clocks(own, beside, name, clock_error_ns=3e6).estimates[name]
        assert plain.low is not None
        assert plain.high is not None
        assert (found.value, found.clock_error) == (plain.value, 3e6)
        assert found.low == pytest.approx(plain.low - 3e6)
        assert found.high == pytest.approx(plain.high + 3e6)


def test_a_difference_by_two_clocks_has_the_errors_of_both_trials() -> None:
    own, beside = [20e6 + n for n in range(50)], [10e6 + n * 2 for n in range(50)]
    found = by_two_clocks(own, beside, "owd_forward_p50_ns", clock_error_ns=3e6)
    reported = found.differences["owd_forward_p50_ns"]
    assert reported.value == pytest.approx(1.0, rel=1e-4)
    assert reported.low is not None
    assert reported.high is not None
    # In truth it may be 17 against 13 ms, or 23 against 7 ms.
    assert reported.low <= 17 / 13 - 1
    assert reported.high >= 23 / 7 - 1
    # Both ways the logarithms' bound is that of the worse way, which is a little wider.
    assert reported.low == pytest.approx(2 * (17 / 20) * (7 / 10) - 1, rel=1e-3)
    assert reported.spread is not None
    test = OneSided("d", reported.spread, math.log(1.5), 1, "ratio", "t", logarithmic=True)
    assert test.p_confirm > 0.9
    assert test.repeats_to_settle(0.05) is None
    assert replace(test, limit=math.log(1.1)).p_confirm < 1e-6


def test_a_clock_error_as_large_as_the_delay_leaves_no_interval_of_a_difference() -> None:
    own, beside = [20e6 + n for n in range(9)], [2e6 + n * 2 for n in range(9)]
    found = by_two_clocks(own, beside, "owd_forward_p50_ns", clock_error_ns=3e6)
    reported, base = found.differences["owd_forward_p50_ns"], found.estimates["owd_forward_p50_ns"]
    assert reported.low is None
    assert reported.high is None
    assert reported.spread is not None
    assert not reported.spread.decides
    assert base.low == pytest.approx(17e6, rel=1e-3)
    # A round trip needs one clock only.
    rtt = by_two_clocks(own, beside, "rtt_p50_ns", clock_error_ns=3e6)
    assert rtt.differences["rtt_p50_ns"].low is not None
    assert rtt.estimates["rtt_p50_ns"].clock_error == 0


def test_a_score_has_the_error_of_its_own_scale_and_a_difference_of_delays_two() -> None:
    own, beside = [4.0, 4.1, 4.0, 4.1], [4.3, 4.4, 4.4, 4.3]
    for metric, error, times in (
        ("voip_mos_p50", "voip_mos_clock_error", 1),
        ("load_added_forward_ns", "clock_error_ns", 2),
    ):
        plain = by_two_clocks(own, beside, metric)
        found = by_two_clocks(own, beside, metric, **{error: 0.5})
        value, difference = found.estimates[metric], found.differences[metric]
        assert value.high is not None
        assert plain.estimates[metric].high is not None
        assert value.clock_error == 0.5 * times
        assert value.high == pytest.approx((plain.estimates[metric].high or 0) + 0.5 * times)
        assert difference.low == pytest.approx((plain.differences[metric].low or 0) - times)


@pytest.mark.parametrize(
    ("figures", "broken"),
    [
        # All replies came, later than the study's limit for late ones.
        ({"goodput_bit_s": 1e4, "loss_forward_ratio": 0.0, "unanswered_ratio": 1.0}, False),
        ({"goodput_bit_s": 0.0, "loss_forward_ratio": 1.0, "unanswered_ratio": 1.0}, True),
        ({"goodput_bit_s": 1e4, "loss_reverse_ratio": 1.0, "unanswered_ratio": 1.0}, True),
        # Every rate lost more than the goal, which may be very little.
        ({"throughput_lower_bit_s": 0.0, "search_loss_min_ratio": 0.01}, False),
        ({"throughput_lower_bit_s": 0.0, "search_loss_min_ratio": 1.0}, True),
    ],
)
def test_what_came_late_or_missed_a_goal_came_through(
    figures: Mapping[str, float | None], broken: bool
) -> None:
    frames = [
        to_frame(made, origin=Origin("made", "tm0", "", ""), pair_id=pair_id(made.trial.point))
        for made in (trial_result("wg", 64, repeat, figures) for repeat in range(1, 5))
    ]
    (point,) = point_estimates(pl.concat(frames), confidence=0.95)
    assert point.broken == broken


def _in_two_environments() -> pl.DataFrame:
    """Trials of one block: it was measured again after an upgrade, by the same numbers."""
    here = table({("wg", 1): [50e6] * 3, ("none", 1): [40e6] * 3}, "rtt_p50_ns")
    later = table({("wg", 1): [60e6] * 3, ("none", 1): [50e6] * 3}, "rtt_p50_ns")
    later = later.with_columns(
        pl.lit("later").alias("environment"), pl.col("started_at") + pl.duration(hours=1)
    )
    return set_apart(pl.concat([here, later]), ())


def test_a_difference_is_from_the_baseline_of_its_own_environment() -> None:
    points = point_estimates(_in_two_environments(), confidence=0.95)
    differences = {
        point.tunnel: point.differences["rtt_p50_ns"] for point in points if not point.is_baseline
    }
    assert {name: one.value for name, one in differences.items()} == {
        "wg": pytest.approx(0.25),
        "wg (in environment later)": pytest.approx(0.2),
    }
    assert {one.spread and one.spread.repeats for one in differences.values()} == {3}
    cells = cells_of(_in_two_environments(), "rtt_p50_ns")
    beside = {cell.apart: set(cell.baseline.values()) for cell in cells if cell.baseline}
    assert beside == {"": {40e6}, "in environment later": {50e6}}
