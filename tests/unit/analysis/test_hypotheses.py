import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest

import made_results
from tunnelmark.analysis.hypotheses import Measured, judge
from tunnelmark.model.hypothesis import (
    FRAGMENTATION_POINT,
    Hypothesis,
    Margin,
    Range,
    Selection,
    Verdict,
)
from tunnelmark.store.rows import Origin, to_frame
from tunnelmark.study.points import pair_id

WG, NONE = Selection({"tunnel": ("wg",)}), Selection({"tunnel": ("none",)})
GOODPUT = "goodput_bit_s"


def table(
    goodputs: Mapping[tuple[str, int], Sequence[float | None]], metric: str = GOODPUT
) -> pl.DataFrame:
    """Trials of (tunnel, payload) with one figure a repeat; None: the trial was invalid."""
    rows = [
        made_results.trial_result(
            tunnel,
            size,
            repeat,
            {} if figure is None else {metric: figure},
            valid=figure is not None,
        )
        for (tunnel, size), figures in goodputs.items()
        for repeat, figure in enumerate(figures, start=1)
    ]
    frames = [
        to_frame(row, origin=Origin("made", "tm00000", "", ""), pair_id=pair_id(row.trial.point))
        for row in rows
    ]
    return pl.concat(frames, how="diagonal_relaxed")


def verdict(trials: pl.DataFrame, hypothesis: Hypothesis, moments: int = 1) -> Verdict:
    blocks = (made_results.block_record(),)
    return judge([hypothesis], Measured(trials, blocks, 0.95, moments))[0]


def around(value: float, scatter: float, repeats: int = 8, seed: int = 1) -> list[float]:
    dice = random.Random(seed)  # noqa: S311 - figures of a test, no secret
    return [value * (1 + scatter * dice.gauss(0, 1)) for _ in range(repeats)]


def compared(kind: str, **more: object) -> Hypothesis:
    values = {"name": "h", "kind": kind, "metric": GOODPUT, "groups": (WG, NONE), **more}
    return Hypothesis(**values)  # type: ignore[arg-type]


def test_a_clear_lead_is_confirmed_with_the_interval_that_says_so() -> None:
    trials = table({("wg", 64): around(11e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    found = verdict(trials, compared("superiority"))
    assert found.outcome == "confirmed"
    assert found.deciding is not None
    assert found.deciding.quantity == "ratio"
    assert found.deciding.method == "t, paired"
    assert found.deciding.low is not None
    assert 0 < found.deciding.low < 0.1 < found.deciding.value + 0.02
    assert "is above 0 %" in found.reason


def test_the_opposite_claim_is_rejected_by_the_same_figures() -> None:
    trials = table({("wg", 64): around(11e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    found = verdict(trials, compared("superiority", better="lower"))
    assert found.outcome == "rejected"
    assert "is not below 0 %" in found.reason


def test_what_cannot_be_decided_says_how_many_repeats_would() -> None:
    trials = table({("wg", 64): [10.2e6, 9.9e6, 10.4e6], ("none", 64): [10e6, 10e6, 10.1e6]})
    found = verdict(trials, compared("superiority"))
    assert found.outcome == "undecided"
    assert found.repeats_to_settle is not None
    assert found.repeats_to_settle > 3


def test_equivalence_needs_the_whole_interval_within_the_margin() -> None:
    trials = table({("wg", 64): around(10e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    within = compared("equivalence", margin=Margin(0.05, relative=True))
    assert verdict(trials, within).outcome == "confirmed"
    narrow = compared("equivalence", margin=Margin(0.001, relative=True))
    assert verdict(trials, narrow).outcome == "undecided"
    off = table({("wg", 64): around(12e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    assert verdict(off, within).outcome == "rejected"


def test_an_equivalence_may_lie_around_a_claimed_gain() -> None:
    trials = table({("wg", 64): around(12e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    for by, outcome in ((0.2, "confirmed"), (0.35, "rejected"), (-0.2, "rejected")):
        claim = compared(
            "equivalence", by=Margin(by, relative=True), margin=Margin(0.05, relative=True)
        )
        assert verdict(trials, claim).outcome == outcome
    bits = compared(
        "equivalence", by=Margin(2e6, relative=False), margin=Margin(5e5, relative=False)
    )
    assert verdict(trials, bits).outcome == "confirmed"


def test_a_relative_margin_of_a_share_is_a_share_of_the_other_mean() -> None:
    """Loss has no logarithm: 5 % against 10 % within half of it, not within a fifth."""
    metric = "cpu_client_ratio"
    trials = table({("wg", 64): around(0.07, 0.02), ("none", 64): around(0.1, 0.02, 8, 2)}, metric)
    for share, outcome in ((0.5, "confirmed"), (0.2, "rejected")):
        margin = Margin(share, relative=True)
        assert verdict(trials, compared("equivalence", metric=metric, margin=margin)).outcome == (
            outcome
        )


def test_non_inferiority_allows_the_margin_and_no_more() -> None:
    trials = table({("wg", 64): around(9.7e6, 0.005), ("none", 64): around(10e6, 0.005, seed=2)})
    for share, outcome in ((0.1, "confirmed"), (0.001, "rejected")):
        claim = compared("non_inferiority", margin=Margin(share, relative=True))
        assert verdict(trials, claim).outcome == outcome
    bits = compared("non_inferiority", margin=Margin(1e6, relative=False))
    found = verdict(trials, bits)
    assert found.outcome == "confirmed"
    assert found.deciding is not None
    assert (found.deciding.quantity, found.deciding.limit) == ("difference", -1e6)


def test_an_order_holds_only_if_every_step_does_everywhere() -> None:
    good = {
        (name, size): around(rate, 0.005, seed=size + seed)
        for size in (64, 512)
        for seed, (name, rate) in enumerate([("none", 12e6), ("wg", 11e6), ("ovpn", 9e6)])
    }
    groups = (NONE, WG, Selection({"tunnel": ("ovpn",)}))
    claim = Hypothesis("h", "order", GOODPUT, groups=groups)
    found = verdict(table(good), claim)
    assert (found.outcome, found.tests) == ("confirmed", 4)
    crossed = {**good, ("wg", 512): around(8e6, 0.005, seed=9)}
    assert verdict(table(crossed), claim).outcome == "rejected"
    small = Hypothesis(
        "h",
        "order",
        GOODPUT,
        groups=groups,
        over=Selection(params={"payload_bytes": Range(None, 100)}),
    )
    assert verdict(table(crossed), small).outcome == "confirmed"


@pytest.mark.parametrize(
    ("shape", "at", "outcome"),
    [
        ("rises_with", None, "confirmed"),
        ("falls_with", None, "rejected"),
        ("rises_steadily", None, "rejected"),
        ("falls_past", "fragmentation_point", "confirmed"),
        ("rises_past", 1420, "rejected"),
        ("peaks_at", 1400, "confirmed"),
        ("peaks_at", 64, "rejected"),
    ],
)
def test_shapes_of_a_curve_that_drops_past_the_fragmentation_point(
    shape: str, at: object, outcome: str
) -> None:
    curve = {64: 1e6, 512: 5e6, 1400: 10e6, 1430: 8e6}
    trials = table({("openvpn", s): around(v, 0.01, seed=s) for s, v in curve.items()})
    claim = Hypothesis(
        "h",
        "shape",
        GOODPUT,
        along="payload_bytes",
        shape=shape,  # type: ignore[arg-type]
        at=at,  # type: ignore[arg-type]
    )
    assert verdict(trials, claim).outcome == outcome


def test_thresholds_of_each_and_of_the_highest() -> None:
    trials = table({("wg", 64): around(5e6, 0.01), ("wg", 512): around(9e6, 0.01, seed=4)})
    cases = [
        ("each", "at_least", 4e6, "confirmed"),
        ("each", "at_least", 6e6, "rejected"),
        ("highest", "at_least", 6e6, "confirmed"),
        ("highest", "at_most", 6e6, "rejected"),
        ("lowest", "at_most", 6e6, "confirmed"),
        ("highest", "at_least", 9e6, "undecided"),
    ]
    for of, bound, limit, outcome in cases:
        claim = Hypothesis("h", "threshold", GOODPUT, of=of, bound=bound, limit=limit)  # type: ignore[arg-type]
        assert verdict(trials, claim).outcome == outcome, (of, bound, limit)


@pytest.mark.parametrize(("error_ns", "decided"), [(0.0, True), (0.4e6, True), (3e6, False)])
def test_nothing_is_claimed_beyond_the_error_of_two_clocks(
    error_ns: float, *, decided: bool
) -> None:
    metric = "owd_forward_p50_ns"
    figures = {("wg", 64): around(10e6, 0.01), ("none", 64): around(12e6, 0.01, seed=2)}
    clocks = pl.lit(error_ns).alias("clock_error_ns")
    trials = table(figures, metric).with_columns(clocks)
    slower = Hypothesis("h", "threshold", metric, of="highest", bound="at_most", limit=13e6)
    faster = compared("superiority", metric=metric, better="lower")
    equal = compared("equivalence", metric=metric, margin=Margin(3e6, relative=False))
    for claim in (slower, faster, equal):
        wanted = "confirmed" if decided else "undecided"
        assert verdict(trials, claim).outcome == wanted, claim.kind
    # What one clock measured is no less known.
    rtt = table(figures, "rtt_p50_ns").with_columns(clocks)
    assert verdict(rtt, compared("superiority", metric="rtt_p50_ns", better="lower")).outcome == (
        "confirmed"
    )


def test_a_tunnel_is_compared_with_what_its_own_environment_gave() -> None:
    """The result was continued after an upgrade, which made everything slower."""
    here = table({("wg", 64): around(11e6, 0.01), ("none", 64): around(10e6, 0.01, seed=2)})
    later = table({("openvpn", 64): around(6e6, 0.01), ("none", 64): around(12e6, 0.01, seed=3)})
    later = later.with_columns(
        pl.lit("later").alias("environment"),
        pl.lit("b2").alias("block_id"),
        pl.col("started_at") + pl.duration(hours=1),
    )
    trials = pl.concat([here, later])
    assert verdict(trials, compared("superiority")).outcome == "confirmed"
    openvpn = Selection({"tunnel": ("openvpn",)})
    found = verdict(trials, compared("superiority", groups=(WG, openvpn)))
    assert found.outcome == "undecided"
    slower = verdict(trials, compared("superiority", groups=(openvpn, NONE), better="lower"))
    assert slower.outcome == "confirmed"
    assert slower.deciding is not None
    assert "in environment later" in slower.deciding.what


def test_a_fragmentation_point_is_a_length_and_needs_no_repeats() -> None:
    trials = table({("openvpn", 64): [1e6]})
    elsewhere = Selection({"tunnel": ("wg",)})
    lacking = Hypothesis(
        "h", "threshold", FRAGMENTATION_POINT, bound="at_least", limit=1.0, over=elsewhere
    )
    assert "the captures show no fragmentation point" in verdict(trials, lacking).reason
    for limit, outcome in ((1420, "confirmed"), (1438, "rejected")):
        claim = Hypothesis("h", "threshold", FRAGMENTATION_POINT, bound="near", limit=limit)
        found = verdict(trials, claim)
        assert found.outcome == outcome
        assert "1420 bytes" in found.reason


def test_a_point_without_a_valid_trial_keeps_a_claim_over_all_points_open() -> None:
    good = {
        (name, size): around(rate, 0.01, seed=size)
        for size in (64, 512)
        for name, rate in (("none", 10e6), ("wg", 12e6))
    }
    assert verdict(table(good), compared("superiority")).outcome == "confirmed"
    lacking: dict[tuple[str, int], Sequence[float | None]] = {**good, ("wg", 512): [None, None]}
    found = verdict(table(lacking), compared("superiority"))
    assert found.outcome == "undecided"
    assert found.deciding is None
    assert "no valid trial of wg" in found.reason
    assert found.reason.endswith("gave Goodput")


def test_a_kind_of_workload_stands_for_the_sizes_that_the_claim_speaks_of() -> None:
    good = {
        (name, size): around(rate, 0.01, seed=size)
        for size in (64, 512)
        for name, rate in (("none", 10e6), ("wg", 12e6))
    }
    trials = table(good)
    labels = tuple(trials["workload"].unique(maintain_order=True))
    assert len(labels) == 2
    over = Selection({"workload": labels}, {"payload_bytes": (512,)})
    claim = Hypothesis("h", "threshold", GOODPUT, over=over, bound="at_least", limit=9e6)
    assert verdict(trials, claim).outcome == "confirmed"
    # The size itself, and a workload that was never run, are missed.
    for missed in (
        Selection({"workload": labels}, {"payload_bytes": (512, 1400)}),
        Selection({"workload": (*labels, "udp_echo 9")}, {"payload_bytes": (512,)}),
    ):
        claim = Hypothesis("h", "threshold", GOODPUT, over=missed, bound="at_least", limit=9e6)
        found = verdict(trials, claim)
        assert found.outcome == "undecided"
        assert "no valid trial" in found.reason


def test_one_repeat_decides_nothing() -> None:
    found = verdict(table({("wg", 64): [2e6], ("none", 64): [1e6]}), compared("superiority"))
    assert found.outcome == "undecided"
    assert "no interval" in found.reason


def test_figures_that_happen_to_be_alike_are_no_certainty() -> None:
    trials = table({("wg", 64): [5.0] * 4, ("none", 64): [4.0] * 4}, "tcp_retransmits_per_s")
    claim = compared("superiority", metric="tcp_retransmits_per_s")
    found = verdict(trials, claim)
    assert found.outcome == "undecided"
    assert found.repeats_to_settle == 6


def test_within_a_family_the_levels_are_holms() -> None:
    """Alone p = 0.02 decides; beside nine claims that show nothing it does not."""
    trials = table({("wg", 64): [10.5e6, 10.7e6, 10.4e6, 10.15e6], ("none", 64): [10e6] * 4})
    claim = compared("superiority", family="one")
    blocks = (made_results.block_record(),)
    alone = judge([claim], Measured(trials, blocks, 0.95))[0]
    assert 0.01 < alone.p_confirm < 0.025
    assert alone.outcome == "confirmed"
    nothing = Hypothesis(
        "n", "threshold", GOODPUT, family="one", bound="at_least", limit=1e9, of="highest"
    )
    others = [nothing] * 9
    together = judge([claim, *others], Measured(trials, blocks, 0.95))
    assert together[0].outcome == "undecided"
    assert "confirmed" not in {one.outcome for one in together[1:]}
    assert together[0].p_confirm == alone.p_confirm


def test_a_run_that_could_stop_early_needs_more() -> None:
    trials = table({("wg", 64): [10.5e6, 10.7e6, 10.4e6, 10.15e6], ("none", 64): [10e6] * 4})
    assert verdict(trials, compared("superiority"), moments=1).outcome == "confirmed"
    found = verdict(trials, compared("superiority"), moments=5)
    assert found.outcome == "undecided"
    assert found.deciding is not None
    assert found.deciding.low is not None
    assert found.deciding.low < 0


def test_the_interval_and_the_verdict_never_disagree() -> None:
    dice = random.Random(5)  # noqa: S311 - likewise
    for _ in range(60):
        one = [dice.gauss(10e6, 5e5) for _ in range(4)]
        other = [dice.gauss(dice.choice([9e6, 10e6, 11e6]), 5e5) for _ in range(4)]
        found = verdict(table({("wg", 64): one, ("none", 64): other}), compared("superiority"))
        assert found.deciding is not None
        low, high = found.deciding.low, found.deciding.high
        assert low is not None
        assert high is not None
        wanted = "confirmed" if low > 0 else "rejected" if high < 0 else "undecided"
        assert found.outcome == wanted


def test_what_is_undecided_is_shown_with_an_interval_that_holds_the_limit() -> None:
    """One of five points is against the claim, alone at a level that five points do not have."""
    dice = random.Random(11)  # noqa: S311 - likewise
    seen = 0
    for _ in range(200):
        figures = {("none", size): around(10e6, 0.01, seed=size) for size in range(64, 69)}
        figures |= {
            ("wg", size): [dice.gauss(10.5e6 if size > 64 else 9.93e6, 1e5) for _ in range(8)]
            for size in range(64, 69)
        }
        found = verdict(table(figures), compared("superiority", hold="everywhere"))
        if found.outcome != "undecided":
            continue
        seen += 1
        assert found.deciding is not None
        assert found.deciding.low is not None
        assert found.deciding.high is not None
        assert found.deciding.low <= 0 <= found.deciding.high
    assert seen > 20


def test_the_mean_of_shares_says_of_which_share() -> None:
    metric = "cpu_client_ratio"
    figures = {("wg", size): around(0.1, 0.02, seed=size) for size in (64, 65, 66)}
    figures |= {("none", size): around(0.1, 0.02, seed=2 * size) for size in (64, 65, 66)}
    margin = Margin(0.5, relative=True)
    claim = compared("non_inferiority", metric=metric, margin=margin, hold="on_average")
    found = verdict(table(figures, metric), replace(claim, better="lower"))
    assert found.deciding is not None
    assert "none times 1.5, mean of 3 points" in found.deciding.what
