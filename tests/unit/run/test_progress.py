"""The stop rule and the plan of repeats, without a machine."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.run.progress import BlockProgress
from tunnelmark.run.stop import relative_half_width
from tunnelmark.study import parse_study
from tunnelmark.study.plan import blocks

_TEXT = """
format = 1
name = "made"
title = "Made"
seed = 3
[precision]
metric = "rtt_p50_ns"
relative_half_width = "5 %"
min_repeats = 3
max_repeats = 6
max_invalid = 2
[[tunnel]]
kind = "wireguard"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 10
payload_bytes = [100, 1000]
"""


def _progress() -> BlockProgress:
    study = parse_study(_TEXT, "made.toml")
    (block,) = blocks(study)
    return BlockProgress(study, block)


def _run(progress: BlockProgress, figure: "random.Random | float") -> int:
    count = 0
    while trials := progress.next_trials():
        for trial in trials:
            value = figure if isinstance(figure, float) else figure.lognormvariate(0, 1)
            progress.record(trial, valid=True, value=value)
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
        progress.record(first, valid=False, value=None)
    assert first.point.point_id in progress.given_up
    assert first.trial_id not in {trial.trial_id for trial in progress.next_trials()}
    _run(progress, 1e6)
    assert progress.next_trials() == ()


def test_a_point_without_a_figure_is_not_precise() -> None:
    progress = _progress()
    count = 0
    while trials := progress.next_trials():
        for trial in trials:
            progress.record(trial, valid=True, value=None)
            count += 1
    assert count == 4 * 6


def test_the_order_is_the_seed_s_and_every_repeat_has_every_point() -> None:
    first, again = _progress().next_trials(), _progress().next_trials()
    assert first == again
    by_repeat = [{t.point.point_id for t in first if t.repeat == n} for n in (1, 2, 3)]
    assert all(len(points) == 4 for points in by_repeat)


def test_a_replay_of_what_is_on_disk_leaves_only_the_rest() -> None:
    whole = _progress()
    done = whole.next_trials()[:5]
    resumed = _progress()
    for trial in done:
        resumed.record(trial, valid=True, value=1e6)
    rest = {trial.trial_id for trial in resumed.next_trials()}
    assert rest == {t.trial_id for t in whole.next_trials()} - {t.trial_id for t in done}


def test_the_width_is_that_of_a_ratio_for_rates() -> None:
    # ln 1 and ln 1.1: mean 0.0477, s 0.0674, t(0.975, 1) = 12.706, half 0.6055, e^0.6055 - 1
    width = relative_half_width([1.0, 1.1], metric="goodput_bit_s", confidence=0.95)
    assert width == pytest.approx(0.832, abs=0.001)


@given(st.lists(st.floats(0, 1), max_size=1))
def test_fewer_than_two_values_have_no_width(values: list[float]) -> None:
    assert relative_half_width(values, metric="loss_forward_ratio", confidence=0.95) is None
