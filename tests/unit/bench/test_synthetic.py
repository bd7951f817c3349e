"""Synthetic results are what was put in: the simulations of verdicts rest on that."""

import statistics
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from synthetic import Design, Truth, simulate, write

from tunnelmark.store import open_result

_MANY = Design(tunnels=("a",), payloads_bytes=(64,), min_repeats=400, max_repeats=400, bring_ups=20)


def _figures(truth: Truth, metric: str, *, tunnel: str = "a", seed: int = 1) -> np.ndarray:
    trials = simulate(_MANY, truth, seed).trials()
    return trials.filter(pl.col("tunnel") == tunnel)[metric].to_numpy()


def test_the_seed_decides_everything() -> None:
    truth = Truth(bring_ups=0.01, loss=0.01, burst=10, invalid=0.1)
    one, again, other = (simulate(Design(), truth, seed).trials() for seed in (1, 1, 2))
    assert_frame_equal(one, again)
    assert not one.equals(other)


def test_effects_and_scatter_are_those_asked_for() -> None:
    truth = Truth({("a", "goodput_bit_s"): -0.1}, repeats=0.05, unequal=2.0)
    logs = [np.log(_figures(truth, "goodput_bit_s", tunnel=name)) for name in ("a", "none")]
    assert np.expm1(logs[0].mean() - logs[1].mean()) == pytest.approx(-0.1, abs=0.02)
    assert [values.std() for values in logs] == pytest.approx([0.1, 0.05], rel=0.15)


def test_bursts_scatter_more_than_single_losses_and_have_the_same_mean() -> None:
    single, bursts = (
        _figures(Truth(loss=0.05, burst=burst), "loss_forward_ratio") for burst in (1.0, 20.0)
    )
    assert single.mean() == pytest.approx(0.05, abs=0.003)
    assert bursts.mean() == pytest.approx(0.05, abs=0.01)
    assert bursts.var() > 10 * single.var()


def test_repeats_of_a_bring_up_are_alike() -> None:
    trials = simulate(_MANY, Truth(repeats=0.001, bring_ups=0.1), 1).trials()
    own = trials.filter(pl.col("tunnel") == "a")
    logs = own.group_by("bring_up").agg(pl.col("rtt_p50_ns").log().alias("log"))["log"].to_list()
    assert statistics.stdev(map(statistics.mean, logs)) > 0.01
    assert max(map(statistics.stdev, logs)) < 0.01


def test_where_nothing_passes_the_loss_is_all_and_there_is_no_delay() -> None:
    trials = simulate(Design(), Truth(lost=frozenset({("b", 512)})), 1).trials()
    there = trials.filter((pl.col("tunnel") == "b") & (pl.col("param_payload_bytes") == 512))
    assert there["loss_forward_ratio"].unique().to_list() == [1.0]
    assert there["rtt_p50_ns"].null_count() == there.height > 0


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = simulate(Design(), Truth(loss=0.01), 1)
    result = open_result(write(made, tmp_path / "made", evidence_bytes=1000))
    read = result.trials()
    columns = [name for name in made.trials().columns if name in read.columns and name != "details"]
    assert_frame_equal(read.select(columns), made.trials().sort("started_at").select(columns))
    assert result.blocks == made.blocks
    assert min(map(len, read["details"])) > 900
