"""What a run will see: scatter as it was put in, and a power that simulated runs have."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats
from synthetic import Design, Truth, simulate

from tunnelmark.analysis.power import POWER, Scatter, scatter_of, smallest_seen, typical
from tunnelmark.model.metrics import METRICS


def test_scatter_is_what_was_put_in() -> None:
    points = tuple(range(64, 68))
    design = Design(
        tunnels=tuple("abcdefghijkl"),
        payloads_bytes=points,
        min_repeats=12,
        max_repeats=12,
        bring_ups=4,
    )
    truth = Truth(repeats=0.02, bring_ups=0.05)
    found = scatter_of(simulate(design, truth, 1).trials())["rtt_p50_ns"]
    # A difference has the scatter of both its sides; half of what differs between bring-ups is
    # common to the points.
    assert found.repeats == pytest.approx(0.02 * math.sqrt(2), rel=0.1)
    common = math.sqrt(0.5 + 0.5 / len(points))
    assert found.bring_ups == pytest.approx(0.05 * math.sqrt(2) * common, rel=0.25)
    alone = scatter_of(simulate(design, Truth(repeats=0.02), 1).trials())["rtt_p50_ns"]
    assert alone.bring_ups < 0.005


def test_scatter_needs_repeats_beside_a_baseline() -> None:
    trials = simulate(Design(min_repeats=2, max_repeats=2), Truth(), 1).trials()
    assert scatter_of(trials) == {}  # one repeat in each bring-up
    assert scatter_of(trials.filter(pl.col("is_baseline"))) == {}


@pytest.mark.parametrize(("repeats", "bring_ups", "level"), [(6, 1, 0.05), (12, 4, 0.005)])
def test_four_of_five_runs_tell_the_smallest_difference(
    repeats: int, bring_ups: int, level: float
) -> None:
    scatter = Scatter(1.0, 0.0)
    seen = smallest_seen(scatter, repeats=repeats, bring_ups=bring_ups, points=1, level=level)
    assert seen is not None
    freedom = (repeats if bring_ups == 1 else bring_ups) - 1
    dice = np.random.default_rng(1)
    count = 20_000
    means = seen + dice.standard_normal(count) / math.sqrt(repeats)
    errors = np.sqrt(dice.chisquare(freedom, count) / freedom / repeats)
    reported = np.abs(means / errors) > stats.t.isf(level / 2, freedom)
    assert reported.mean() == pytest.approx(POWER, abs=0.02)


def test_more_repeats_see_more_and_one_sees_nothing() -> None:
    scatter = Scatter(0.02, 0.01)
    seen = [
        smallest_seen(scatter, repeats=n, bring_ups=n // 2, points=3, level=0.05)
        for n in (4, 8, 16, 32)
    ]
    assert None not in seen
    assert seen == sorted(seen, key=lambda one: -(one or 0))
    assert smallest_seen(scatter, repeats=1, bring_ups=1, points=3, level=0.05) is None
    assert smallest_seen(Scatter(0, 0), repeats=4, bring_ups=2, points=3, level=0.05) == 0


def test_typical_scatter_is_of_known_metrics_and_names_its_source() -> None:
    known, source = typical()
    assert source
    assert known.keys() <= METRICS.keys()
    assert {"rtt_p50_ns", "goodput_bit_s"} <= known.keys()
