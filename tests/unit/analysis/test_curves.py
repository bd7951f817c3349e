"""Curves, factors and drift of whole tables of trials."""

import random
from dataclasses import replace

import polars as pl
import pytest
from scipy import stats

import made_results
from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.curves import curves, together
from tunnelmark.analysis.drift import Drift
from tunnelmark.analysis.explore import Exploration, explore
from tunnelmark.analysis.factorial import factorial
from tunnelmark.analysis.strata import set_apart
from tunnelmark.model.block import Stratum
from tunnelmark.store.rows import Origin, to_frame
from tunnelmark.study.points import pair_id

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
                        result,
                        origin=Origin("made", "tm0", "", ""),
                        pair_id=pair_id(result.trial.point),
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


def test_the_factor_that_matters_is_reported_with_its_share() -> None:
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


def test_factors_that_cannot_be_distinguished_give_no_analysis_of_variance() -> None:
    """Each tunnel was measured at a size of its own: either may be the reason."""
    both = ((pl.col("tunnel") == "wg") & (pl.col("param_payload_bytes") == 64)) | (
        (pl.col("tunnel") == "none") & (pl.col("param_payload_bytes") == 256)
    )
    assert factorial(cells_of(table().filter(both), "goodput_bit_s"), "goodput_bit_s") == ()


def test_drift_of_the_baseline_is_reported_from_none() -> None:
    (steady,) = explored(table()).drift
    assert not steady.reported
    (grown,) = explored(table(0.02)).drift
    assert grown.reported
    assert grown.low < 1.10 / 1.02 - 1 < grown.high


def test_a_drift_that_matters_to_nobody_is_not_reported() -> None:
    """0.011 % in a run was "drifted", however certain."""
    tiny = Drift("rtt_p50_ns", 30, 600.0, 1.1e-4, 0.9e-4, 1.3e-4, relative=True, p=1e-9)
    assert not tiny.matters
    assert replace(tiny, change=0.02).matters


def explored(trials: pl.DataFrame) -> Exploration:
    return explore(trials, ("goodput_bit_s",), confidence=0.99, moments=1)


def test_all_that_analyse_looks_at_is_one_family() -> None:
    found = explored(table())
    alone = factorial(cells_of(table(), "goodput_bit_s"), "goodput_bit_s")[0].effects
    together_ = found.factorial[0].effects
    assert all(one.reported for one in together_)
    assert all(a.p <= b.p for a, b in zip(alone, together_, strict=True))


def test_a_block_that_was_faster_is_no_effect_of_its_tunnel() -> None:
    """The second tunnel's machine was half as fast, for its baseline too."""
    dice = random.Random(2)  # noqa: S311 - likewise
    frames = []
    for block, tunnel, level in (("b1", "a", 1.0), ("b2", "b", 0.5)):
        for repeat in range(1, 7):
            for size in (64, 512):
                for name in ("none", tunnel):
                    rate = 1e6 * level * (1 + 0.01 * dice.gauss(0, 1))
                    made = made_results.trial_result(
                        name, size, repeat, {"goodput_bit_s": rate}, block=block
                    )
                    own = pair_id(made.trial.point)
                    frames.append(to_frame(made, origin=Origin("m", "tm0", "", ""), pair_id=own))
    trials = pl.concat(frames, how="diagonal_relaxed")
    (found,) = explored(trials).factorial
    assert not any(effect.reported for effect in found.effects)


def test_curves_of_workloads_that_differ_in_two_ways_are_two() -> None:
    both = [
        table().with_columns(param_gap_ns=pl.lit(gap), param_packets=pl.lit(packets))
        for gap, packets in ((5_000_000, 100), (10_000_000, 200))
    ]
    both[1] = both[1].with_columns(pl.col("point_id") + "+", pl.col("pair_id") + "+")
    found = [c.place for c in curves(pl.concat(both), "goodput_bit_s", confidence=0.95)]
    assert len(found) == 4
    assert sum("gap_ns 5000000" in place for place in found) == 2


def test_strata_are_analysed_apart() -> None:
    here = table()
    emulated = here.with_columns(
        pl.lit("vm").alias("block_id"), pl.col("started_at") + pl.duration(hours=1)
    )
    blocks = [
        replace(made_results.block_record(), block_id=here["block_id"][0]),
        replace(made_results.block_record(), block_id="vm", stratum=Stratum.EMULATED),
    ]
    trials = set_apart(pl.concat([here, emulated]), blocks)
    cells = cells_of(trials, "goodput_bit_s")
    assert {one.workload for one in factorial(cells, "goodput_bit_s")} == {
        "udp_echo",
        "udp_echo (emulated)",
    }
    assert len(curves(trials, "goodput_bit_s", confidence=0.95)) == 4
