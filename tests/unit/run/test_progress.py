"""The stop rule and the plan of repeats, without a machine."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_study import made_text
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.rules import Precision
from tunnelmark.run.progress import JobProgress, kind_of
from tunnelmark.run.time_left import TimeLeft, expected_s
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.study.points import blocks

_TEXT = made_text("min_repeats = 3\nmax_repeats = 6\nmax_invalid = 2")


def _progress() -> JobProgress:
    (job,) = jobs(parse_study(_TEXT, "made.toml"))
    return JobProgress(job)


def _run(progress: JobProgress, figure: "random.Random | float") -> int:
    count = 0
    while trials := progress.next_trials():
        for trial in trials:
            value = figure if isinstance(figure, float) else figure.lognormvariate(0, 1)
            progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, value))
            count += 1
    return count


def test_precise_points_stop_at_the_least_number_of_repeats() -> None:
    assert _run(_progress(), 1e6) == 4 * 3


def test_noisy_points_stop_at_the_largest() -> None:
    assert _run(_progress(), random.Random(1)) == 4 * 6  # noqa: S311 - figures, no secret


def test_an_invalid_attempt_is_repeated_and_too_many_give_the_point_up() -> None:
    progress = _progress()
    first = progress.next_trials()[0]
    for _ in range(3):
        assert first.trial_id in {trial.trial_id for trial in progress.next_trials()}
        progress.record(first, valid=False, figures=dict.fromkeys(METRICS, None))
    assert first.point.point_id in progress.given_up
    assert first.trial_id not in {trial.trial_id for trial in progress.next_trials()}
    _run(progress, 1e6)
    assert progress.next_trials() == ()


def test_where_there_is_never_a_figure_more_repeats_are_not_run() -> None:
    progress = _progress()
    count = 0
    while trials := progress.next_trials():
        for trial in trials:
            progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, None))
            count += 1
    assert count == 4 * 3


def test_the_order_is_the_seed_s_and_every_repeat_has_every_point() -> None:
    first, again = _progress().known_trials(), _progress().known_trials()
    assert first == again
    by_repeat = [{t.point.point_id for t in first if t.repeat == n} for n in (1, 2, 3)]
    assert all(len(points) == 4 for points in by_repeat)


def test_a_replay_of_what_is_on_disk_leaves_only_the_rest() -> None:
    whole = _progress()
    done = whole.known_trials()[:5]
    resumed = _progress()
    for trial in done:
        resumed.record(trial, valid=True, figures=dict.fromkeys(METRICS, 1e6))
    rest = {trial.trial_id for trial in resumed.known_trials()}
    assert rest == {t.trial_id for t in whole.known_trials()} - {t.trial_id for t in done}


def test_the_least_repeats_are_spread_over_bring_ups_and_more_go_on_in_the_same_way() -> None:
    progress = _progress()
    seen: list[tuple[int, int]] = []
    dice = random.Random(1)  # noqa: S311 - figures, no secret
    while trials := progress.next_trials():
        assert len({trial.bring_up for trial in trials}) == 1
        seen += [(trial.bring_up, trial.repeat) for trial in trials]
        for trial in trials:
            progress.record(
                trial, valid=True, figures=dict.fromkeys(METRICS, dice.lognormvariate(0, 1))
            )
    assert list(dict.fromkeys(seen)) == [(1, 1), (1, 2), (2, 3), (3, 4), (3, 5), (4, 6)]


def test_an_invalid_trial_is_repeated_before_its_bring_up_ends() -> None:
    progress = _progress()
    for trial in progress.next_trials():
        progress.record(trial, valid=trial.repeat == 1, figures=dict.fromkeys(METRICS, 1e6))
    assert {(trial.bring_up, trial.repeat) for trial in progress.next_trials()} == {(1, 2)}


@given(st.integers(1, 60), st.integers(1, 60))
def test_every_bring_up_has_its_share_of_the_repeats(repeats: int, bring_ups: int) -> None:
    bring_ups = min(bring_ups, repeats)  # more are refused in a study (tests/unit/study)
    precision = Precision(min_repeats=repeats, max_repeats=60, bring_ups=bring_ups)
    shares = Counter(precision.bring_up_of(number) for number in range(1, repeats + 1))
    assert set(shares) == set(range(1, bring_ups + 1))
    assert max(shares.values()) - min(shares.values()) <= 1
    assert precision.bring_up_of(repeats + 1) == (bring_ups + 1 if bring_ups > 1 else 1)


def test_partners_are_repeated_together_until_both_are_precise() -> None:
    progress = _progress()
    dice = random.Random(2)  # noqa: S311 - figures, no secret
    counts: dict[str, int] = {}
    while trials := progress.next_trials():
        for trial in trials:
            noisy = trial.point.tunnel.kind == "none" and "1000" in trial.point.workload.label
            value = dice.lognormvariate(0, 1) if noisy else 1e6
            progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, value))
            name = trial.point.workload.label
            counts[name] = counts.get(name, 0) + 1
    assert counts == {"udp_echo 100": 2 * 3, "udp_echo 1000": 2 * 6}


def test_a_point_that_is_given_up_does_not_hold_up_its_partner() -> None:
    progress = _progress()
    lost = progress.next_trials()[0]
    for _ in range(3):
        progress.record(lost, valid=False, figures=dict.fromkeys(METRICS, None))
    dice = random.Random(3)  # noqa: S311 - figures, no secret
    _run(progress, dice)
    partner = next(
        point
        for point in progress.job.block.points
        if point.workload == lost.point.workload and point != lost.point
    )
    assert len(progress.values[partner.point_id]) == 6
    assert len(progress.values[lost.point.point_id]) == 0


def test_a_forgiven_attempt_is_counted_but_not_held_against_its_point() -> None:
    progress = _progress()
    first = progress.next_trials()[0]
    for _ in range(10):
        progress.record(first, valid=False, figures={}, forgiven=True)
    assert progress.attempts[first.trial_id] == 10
    assert first.point.point_id not in progress.given_up
    assert first.trial_id in {trial.trial_id for trial in progress.next_trials()}


def test_partners_stand_side_by_side_and_either_comes_first() -> None:
    trials = _progress().known_trials()
    firsts = set()
    for one, other in zip(trials[::2], trials[1::2], strict=True):
        assert one.point.workload == other.point.workload
        assert {one.point.tunnel.kind, other.point.tunnel.kind} == {"none", "wireguard"}
        firsts.add(one.point.tunnel.kind)
    assert firsts == {"none", "wireguard"}


def test_several_tunnels_are_compared_with_as_many_bare_paths() -> None:
    study = parse_study(
        _TEXT.replace('kind = "wireguard"', 'kind = "wireguard"\ncount = 3'), "m.toml"
    )
    (block,) = blocks(study)
    assert block.baseline.columns == {"count": 3}
    assert block.baseline.label == "none x3"
    study = parse_study(_TEXT.replace("[[tunnel]]\n", "").replace('kind = "wireguard"\n', ""), "m")
    (block,) = blocks(study)
    assert block.tunnel == block.baseline
    assert len(block.points) == 2


def test_a_tunnel_with_ipv6_inside_is_compared_with_bare_paths_over_ipv6() -> None:
    ipsec = _TEXT.replace('kind = "wireguard"', 'kind = "ipsec"\ninner = "ipv6"\ncount = 2')
    (block,) = blocks(parse_study(ipsec, "m.toml"))
    assert block.baseline.columns == {"count": 2, "inner": "ipv6"}
    assert block.baseline.label == "none x2 IPv6"
    (block,) = blocks(parse_study(ipsec.replace("inner", "outer"), "m.toml"))
    assert block.baseline.columns == {"count": 2}
    assert block.baseline.label == "none x2"


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([True, False, None])), max_size=60))
def test_what_is_to_do_is_counted_as_it_is_listed(attempts: list[tuple[int, bool | None]]) -> None:
    progress = _progress()
    for number, valid in attempts:
        if not (trials := progress.known_trials()):
            break
        trial = trials[number % len(trials)]
        if valid is None:
            progress.open_until(4 + number % 3)
        else:
            progress.record(trial, valid=valid, figures=dict.fromkeys(METRICS, 1.0))
        counts = {kind: count for kind, count in progress.known_counts().items() if count}
        assert counts == Counter(map(kind_of, progress.known_trials()))


def test_time_left_learns_from_what_was_seen() -> None:
    progress = _progress()
    trials = progress.known_trials()
    left = TimeLeft(progress.job.expected_s)
    guess = left.seconds([(trials, None)])
    expected = 0.05 + 0.3
    # Two bring-ups.
    assert guess == pytest.approx(2 * 6.0 + 12 * (expected + 0.4))
    left.bring_up_done({"lab_up": 1.0, "proof": 2.0, "down": 0.5, "trials": 99.0, "measuring": 9.0})
    left.trial_done(trials[0], expected + 0.1)
    assert left.seconds([(trials, None)]) == pytest.approx(2 * 3.5 + 12 * (expected + 0.1))
    assert left.seconds([(trials, 1)]) == pytest.approx(3.5 + 12 * (expected + 0.1))
    assert left.seconds([((), None)]) == 0.0


def test_the_time_of_a_run_grows_with_its_repeats() -> None:
    study = parse_study(_TEXT, "made.toml")
    least, most = expected_s(jobs(study))
    one_trial = 0.05 + 0.3 + 0.4
    assert least == pytest.approx(2 * 6.0 + 12 * one_trial)
    points = len(blocks(study)[0].points)
    more = study.precision.max_repeats - study.precision.min_repeats
    assert more > 0
    # Repeats 4 to 6 are of two more bring-ups.
    assert most == pytest.approx(least + more * points * one_trial + 2 * 6.0)
