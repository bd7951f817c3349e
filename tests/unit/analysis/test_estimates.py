"""Estimates against known answers."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_results import trial_result, write
from tunnelmark.analysis.delays import ecdf
from tunnelmark.analysis.estimates import difference, estimate, point_estimates
from tunnelmark.store import open_result


def test_the_interval_of_a_mean_is_student_s() -> None:
    # Student 1908: the additional hours of sleep by the second drug; mean 2.33, s 2.002,
    # t(0.975, 9) = 2.262, half width 1.432.
    hours = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = estimate(hours, metric="loss_forward_ratio", confidence=0.95)
    assert found is not None
    assert found.low is not None
    assert found.value == pytest.approx(2.33)
    assert found.value - found.low == pytest.approx(1.432, abs=0.001)


def test_a_paired_difference_is_student_s() -> None:
    # The same paper: the mean difference of both drugs is 1.58 hours, t = 4.06.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = difference(
        list(zip(second, first, strict=True)), metric="loss_forward_ratio", confidence=0.95
    )
    assert found is not None
    assert found.low is not None
    assert found.value == pytest.approx(1.58)
    assert found.low == pytest.approx(0.700, abs=0.001)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(20261121)
    hits = 0
    for _ in range(2000):
        values = random.normal(10.0, 3.0, size=6).tolist()
        found = estimate(values, metric="loss_forward_ratio", confidence=0.95)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 10.0 <= found.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_a_metric_that_is_newer_than_the_result_is_missing(tmp_path: Path) -> None:
    trials = open_result(
        write(tmp_path, [trial_result("none", 64, 1, {"rtt_p50_ns": 1e6})])
    ).trials()
    (found,) = point_estimates(trials.drop("goodput_bit_s"), confidence=0.95)
    assert "goodput_bit_s" not in found.estimates
    assert found.estimates["rtt_p50_ns"].value == pytest.approx(1e6)


@given(st.lists(st.floats(1e3, 1e9), min_size=2, max_size=10), st.floats(0.1, 10.0))
def test_rates_are_compared_as_ratios(values: list[float], factor: float) -> None:
    pairs = [(value * factor, value) for value in values]
    found = difference(pairs, metric="goodput_bit_s", confidence=0.95)
    assert found is not None
    assert found.value == pytest.approx(factor - 1, rel=1e-6, abs=1e-9)


def test_missing_is_not_zero() -> None:
    assert estimate([], metric="rtt_p50_ns", confidence=0.95) is None
    one = estimate([5.0], metric="rtt_p50_ns", confidence=0.95)
    assert one is not None
    assert (one.value, one.low, one.high) == (pytest.approx(5.0), None, None)


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
    delays, shares = ecdf([np.array(values, dtype=np.int64)])
    assert delays[0] == min(values) / 1e6
    assert delays[-1] == max(values) / 1e6
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert math.isclose(shares[0], 1 / len(values))
