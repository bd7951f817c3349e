"""Curves, factors and drift of whole tables of trials."""

import random

import polars as pl
import pytest
from scipy import stats

import made_results
from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.curves import curves, together
from tunnelmark.analysis.drift import baseline_drift
from tunnelmark.analysis.factorial import factorial
from tunnelmark.store.rows import to_frame
from tunnelmark.study.plan import pair_id

SIZES = (64, 256, 512, 768, 1024, 1280)


def table(drift: float = 0.0) -> pl.DataFrame:
    """Goodput that follows the payload until the CPU is used up at 768, then loss; none is free."""
    dice = random.Random(1)  # noqa: S311 - figures of a test, no secret
    frames = []
    for repeat in range(1, 6):
        for size in SIZES:
            for tunnel in ("none", "wg"):
                full = min(size, 700) if tunnel == "wg" else size
                grown = 1 + drift * repeat
                figures: dict[str, float | None] = {
                    "goodput_bit_s": 1e4 * full * grown * (1 + 0.01 * dice.gauss(0, 1)),
                    "loss_forward_ratio": (0.0 if size == full else 1 - full / size)
                    + 1e-5 * dice.random(),
                    "cpu_device_client_ratio": min(0.99, size / 700 - 0.02) + 0.002 * dice.random()
                    if tunnel == "wg"
                    else 0.1 + 0.01 * dice.random(),
                }
                result = made_results.trial_result(tunnel, size, repeat, figures)
                frames.append(
                    to_frame(
                        result, study="made", run_id="tm0", pair_id=pair_id(result.trial.point)
                    )
                )
    return pl.concat(frames, how="diagonal_relaxed")


def test_a_curve_bends_where_the_cpu_is_used_up_and_loss_sets_in() -> None:
    found = {c.place: c for c in curves(table(), "goodput_bit_s", confidence=0.95)}
    assert len(found) == 2
    wg = next(curve for place, curve in found.items() if place.startswith("wg"))
    assert wg.along == "payload_bytes"
    assert wg.levels == SIZES
    assert wg.knee is not None
    assert wg.knee.low < 700 < wg.knee.high
    assert wg.knee.p < 0.01
    crossings = {c.metric: (c.before, c.after) for c in wg.crossings}
    assert crossings["loss_forward_ratio"] == (512, 768)
    assert crossings["cpu_device_client_ratio"] == (512, 768)
    none = next(curve for place, curve in found.items() if place.startswith("none"))
    assert {c.after for c in none.crossings} == {None}


def test_loss_and_cpu_go_together() -> None:
    found = together(table(), ("loss_forward_ratio",), confidence=0.95)
    wg = next(one for one in found if one.place.startswith("wg"))
    assert wg.cpu == "cpu_device_client_ratio"
    assert wg.correlation.points == len(SIZES)
    assert wg.correlation.rho > 0.5


def test_the_factor_that_matters_is_told_with_its_share() -> None:
    found = factorial(cells_of(table(), "goodput_bit_s"), "goodput_bit_s")
    assert len(found) == 1
    shares = {effect.factors: effect.partial_omega_squared for effect in found[0].effects}
    assert set(shares) == {("tunnel",), ("payload_bytes",), ("tunnel", "payload_bytes")}
    assert found[0].logarithmic
    assert found[0].interactions
    assert found[0].residual_freedom == 5 * 2 * len(SIZES) - 2 * len(SIZES)
    assert min(shares.values()) > 0.9


def test_one_factor_is_the_f_test_that_scipy_has() -> None:
    trials = table().filter(pl.col("tunnel") == "wg")
    cells = cells_of(trials, "cpu_device_client_ratio")
    found = factorial(cells, "cpu_device_client_ratio")[0]
    wanted = stats.f_oneway(*(cell.values for cell in cells))
    effect = found.effects[0]
    assert (effect.f, effect.p) == (
        pytest.approx(wanted.statistic),
        pytest.approx(wanted.pvalue, abs=1e-12),
    )


def test_points_measured_once_give_no_analysis_of_variance() -> None:
    once = table().filter((pl.col("repeat") == 1) & (pl.col("tunnel") == "wg"))
    assert factorial(cells_of(once, "goodput_bit_s"), "goodput_bit_s") == ()


def test_factors_that_cannot_be_told_apart_give_no_analysis_of_variance() -> None:
    """Each tunnel was measured at a size of its own: either may be the reason."""
    both = ((pl.col("tunnel") == "wg") & (pl.col("param_payload_bytes") == 64)) | (
        (pl.col("tunnel") == "none") & (pl.col("param_payload_bytes") == 256)
    )
    assert factorial(cells_of(table().filter(both), "goodput_bit_s"), "goodput_bit_s") == ()


def test_drift_of_the_baseline_is_told_from_none() -> None:
    steady = baseline_drift(table(), "goodput_bit_s", confidence=0.99)
    assert steady is not None
    assert not steady.clear
    grown = baseline_drift(table(0.02), "goodput_bit_s", confidence=0.99)
    assert grown is not None
    assert grown.clear
    assert grown.low < 1.10 / 1.02 - 1 < grown.high
