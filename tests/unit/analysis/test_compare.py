"""Two runs beside each other."""

import random
from dataclasses import replace

import polars as pl
import pytest
from scipy import stats

import made_results
from tunnelmark.analysis.compare import Run, compare, headline_metrics
from tunnelmark.analysis.strata import without_stratum
from tunnelmark.model.block import Stratum
from tunnelmark.store.rows import Origin, to_frame
from tunnelmark.study.points import pair_id

METRICS = ("goodput_bit_s", "rtt_p50_ns")


def run(
    seed: int, faster: float = 1.0, *, tunnel: float = 1.0, study: str = "made", **environment: str
) -> Run:
    dice = random.Random(seed)  # noqa: S311 - figures of a test, no secret
    frames = []
    for repeat in range(1, 7):
        machine = faster * (1 + 0.02 * dice.gauss(0, 1))
        for name, rate in (("none", 10e6), ("wg", 8e6 * tunnel)):
            figures: dict[str, float | None] = {
                "goodput_bit_s": rate * machine * (1 + 0.002 * dice.gauss(0, 1)),
                "rtt_p50_ns": 1e6 * (1 + 0.01 * dice.gauss(0, 1)),
            }
            result = made_results.trial_result(name, 64, repeat, figures)
            own = pair_id(result.trial.point)
            frames.append(to_frame(result, origin=Origin("made", "tm0", "", ""), pair_id=own))
    return Run(study, "full", environment, pl.concat(frames, how="diagonal_relaxed"), ())


def test_what_changed_is_reported_and_what_did_not_is_not() -> None:
    found = compare(run(1), run(2, tunnel=1.2), METRICS, confidence=0.95)
    changes = {(c.tunnel, c.metric): c for c in found.changes}
    assert set(changes) == {(t, m) for t in ("none", "wg") for m in METRICS}
    grown = changes["wg", "goodput_bit_s"]
    assert grown.clear
    assert grown.quantity == "ratio"
    assert grown.low is not None
    assert grown.high is not None
    assert grown.low < 0.2 < grown.high
    assert not changes["none", "goodput_bit_s"].clear
    assert not changes["wg", "rtt_p50_ns"].clear
    assert not found.unlike


def test_a_change_within_the_error_of_two_clocks_is_none() -> None:
    def delays(seed: int, ms: float, error_ms: float) -> Run:
        one = run(seed)
        delay = (pl.col("rtt_p50_ns") * ms).alias("owd_forward_p50_ns")
        error = pl.lit(error_ms * 1e6).alias("clock_error_ns")
        return replace(one, trials=one.trials.with_columns(delay, error))

    for error_ms, clear in ((0.0, True), (0.1, True), (1.0, False)):
        here, there = delays(1, 10, 0.0), delays(2, 11, error_ms)
        found = compare(here, there, ("owd_forward_p50_ns",), confidence=0.95)
        assert {change.clear for change in found.changes} == {clear}, error_ms
        beside = compare(here, there, ("owd_forward_p50_ns",), confidence=0.95, to_baseline=True)
        assert not any(change.clear for change in beside.changes)


def placed(one: Run, stratum: Stratum) -> Run:
    block = replace(made_results.block_record(), stratum=stratum)
    return replace(one, blocks=(block,))


def test_runs_in_two_places_are_compared_and_named_unlike() -> None:
    lab, hosts = placed(run(1), Stratum.NAMESPACES), placed(run(2, tunnel=1.2), Stratum.HOSTS)
    found = compare(lab, hosts, METRICS, confidence=0.95)
    assert found.unlike == ("they ran in different places: namespaces in A, real hosts in B",)
    assert not found.only_first
    assert not found.only_second
    figures = {(c.metric, c.first, c.second) for c in found.changes}
    alike = compare(run(1), run(2, tunnel=1.2), METRICS, confidence=0.95)
    assert figures == {(c.metric, c.first, c.second) for c in alike.changes}
    # Both places in one run: what belongs to which is not known.
    blocks = [*lab.blocks, replace(hosts.blocks[0], block_id="b2")]
    mixed = compare(lab, replace(hosts, blocks=blocks), METRICS, confidence=0.95)
    assert mixed.unlike


@pytest.mark.parametrize(
    ("name", "stratum", "plain"),
    [
        ("wg (real hosts)", Stratum.HOSTS, "wg"),
        ("wg (wireguard-go, real hosts)", Stratum.HOSTS, "wg (wireguard-go)"),
        ("wg (real hosts)", Stratum.EMULATED, "wg (real hosts)"),
        ("wg (wireguard-go)", Stratum.NAMESPACES, "wg (wireguard-go)"),
    ],
)
def test_a_name_without_its_place(name: str, stratum: Stratum, plain: str) -> None:
    assert without_stratum(name, stratum) == plain


def test_two_runs_are_never_paired_although_their_blocks_have_the_same_names() -> None:
    one, other = run(1), run(2)
    change = compare(one, other, METRICS[:1], confidence=0.95).changes[0]
    assert change.method == "Welch"
    values = [
        r.trials.filter(pl.col("tunnel") == change.tunnel)["goodput_bit_s"].log()
        for r in (other, one)
    ]
    wanted = stats.ttest_ind(*values, equal_var=False).confidence_interval(change.confidence)
    assert change.low == pytest.approx(float(pl.Series([wanted.low]).exp()[0]) - 1)


def test_a_faster_machine_falls_out_to_the_baseline() -> None:
    plain = compare(run(1), run(2, 1.5), METRICS[:1], confidence=0.95)
    assert all(change.clear for change in plain.changes)
    found = compare(run(1), run(2, 1.5), METRICS[:1], confidence=0.95, to_baseline=True)
    assert [change.tunnel for change in found.changes] == ["wg"]
    assert not found.changes[0].clear
    assert found.changes[0].method == "Welch, each to its baseline"
    low, high = found.changes[0].low, found.changes[0].high
    assert low is not None
    assert high is not None
    # Each repeat's own machine speed is gone too: the interval is narrow.
    assert high - low < 0.02


def test_a_faster_place_falls_out_to_the_baseline() -> None:
    lab, hosts = placed(run(1), Stratum.NAMESPACES), placed(run(2, 1.5), Stratum.HOSTS)
    found = compare(lab, hosts, METRICS[:1], confidence=0.95, to_baseline=True)
    (change,) = found.changes
    assert change.method == "Welch, each to its baseline"
    assert not change.clear


@pytest.mark.parametrize(("kept", "compared"), [(5, True), (1, True), (0, False)])
def test_a_repeat_without_its_baseline_does_not_count(kept: int, compared: bool) -> None:
    other = run(2, 1.5)
    trials = other.trials.filter(~pl.col("is_baseline") | (pl.col("repeat") <= kept))
    other = replace(other, trials=trials)
    found = compare(run(1), other, METRICS[:1], confidence=0.95, to_baseline=True)
    assert [c.clear for c in found.changes] == [False] * compared
    assert len(found.without_baseline) == (not compared)
    for change in found.changes:
        assert change.repeats == (6, kept)
        used = trials.filter(~pl.col("is_baseline") & (pl.col("repeat") <= kept))
        assert change.second == pytest.approx(used["goodput_bit_s"].mean())


def without(one: Run, metric: str, *, where: pl.Expr) -> Run:
    """Return a run in which some trials do not have a metric."""
    kept = pl.when(~where).then(pl.col(metric)).alias(metric)
    return replace(one, trials=one.trials.with_columns(kept))


def test_a_figure_that_the_baseline_lacks_is_left_out_by_its_name() -> None:
    bare = pl.col("is_baseline")
    some = without(run(2), "rtt_p50_ns", where=bare)
    found = compare(run(1), some, METRICS, confidence=0.95, to_baseline=True)
    assert [change.metric for change in found.changes] == ["goodput_bit_s"]
    (said,) = found.without_baseline
    assert (
        said == "wg, 8 Mbit/s, udp_echo 64: RTT, median (no repeat in B has a baseline beside it)"
    )
    none = without(without(run(1), "goodput_bit_s", where=bare), "rtt_p50_ns", where=bare)
    found = compare(none, some, METRICS, confidence=0.95, to_baseline=True)
    assert [one.partition(": ")[2] for one in found.without_baseline] == [
        "Goodput (no repeat in A has a baseline beside it)",
    ]
    assert found.unlike == ("no point of both has the same baseline beside a repeat in each",)


def test_another_baseline_is_not_called_a_lacking_one() -> None:
    other = run(2)
    named = pl.when(pl.col("is_baseline")).then(pl.lit("none2")).otherwise(pl.col("point_id"))
    other = replace(other, trials=other.trials.with_columns(named.alias("point_id")))
    found = compare(run(1), other, METRICS, confidence=0.95, to_baseline=True)
    assert found.without_baseline == (
        "wg, 8 Mbit/s, udp_echo 64: Goodput and RTT, median (the baselines differ)",
    )


def test_what_the_baseline_of_another_workload_gives_is_not_lacking() -> None:
    """The baseline of one kind of workload says nothing of what that of another could give."""

    def both(seed: int) -> Run:
        one = run(seed)
        other = one.trials.with_columns(
            (pl.col("point_id") + "-web").alias("point_id"),
            (pl.col("pair_id") + "-web").alias("pair_id"),
            *(pl.lit("web").alias(name) for name in ("workload", "workload_kind")),
        )
        every = pl.concat([one.trials, other])
        web = pl.col("is_baseline") & (pl.col("workload_kind") == "web")
        return without(replace(one, trials=every), "rtt_p50_ns", where=web)

    found = compare(both(1), both(2), METRICS, confidence=0.95, to_baseline=True)
    assert len(found.changes) == 3
    assert not found.without_baseline


def test_what_no_baseline_ever_gives_lacks_none() -> None:
    cpu = pl.when(~pl.col("is_baseline")).then(0.1).cast(pl.Float64).alias("cpu_tunnel_ratio")
    before, after = (replace(one, trials=one.trials.with_columns(cpu)) for one in (run(1), run(2)))
    metrics = ("goodput_bit_s", "cpu_tunnel_ratio")
    found = compare(before, after, metrics, confidence=0.95, to_baseline=True)
    assert [change.metric for change in found.changes] == ["goodput_bit_s"]
    assert not found.without_baseline


def test_a_run_that_could_stop_early_gets_wider_intervals() -> None:
    one, other = run(1), run(2)
    wide = Run(one.study, one.scale, {}, one.trials, (), moments=5)
    plain = compare(one, other, METRICS[:1], confidence=0.95).changes[0]
    careful = compare(wide, other, METRICS[:1], confidence=0.95).changes[0]
    assert plain.low is not None
    assert careful.low is not None
    assert careful.low < plain.low


def test_a_run_and_itself_have_no_difference_worth_telling() -> None:
    found = compare(run(1), run(1), METRICS, confidence=0.95)
    assert not any(change.clear for change in found.changes)
    assert found.said.startswith("no relevant difference")
    assert "differ clearly" in compare(run(1), run(2, 1.5), METRICS, confidence=0.95).said


def test_the_environment_is_reported_where_it_differs() -> None:
    found = compare(
        run(1, kernel="6.1", cpu="A"),
        run(2, kernel="6.18", cpu="A", openvpn="2.6"),
        METRICS,
        confidence=0.95,
    )
    assert found.environment == (("kernel", "6.1", "6.18"), ("openvpn", None, "2.6"))


def test_unlike_runs_are_named() -> None:
    found = compare(run(1), run(2, study="other"), METRICS, confidence=0.95)
    assert found.unlike == ("the study is made in A and other in B",)
    nothing = compare(run(1), run(2), ("tcp_goodput_bit_s",), confidence=0.95)
    assert nothing.unlike == ("they share no point and metric",)
    assert nothing.said == "nothing was compared"


def test_the_metrics_reported_first_are_those_that_both_have() -> None:
    one = run(1).trials
    found = headline_metrics(one, one.drop("rtt_p50_ns"))
    assert "goodput_bit_s" in found
    assert "rtt_p50_ns" not in found
    assert "tcp_goodput_bit_s" not in found
