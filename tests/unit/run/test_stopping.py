"""What a run stops for: the difference that the study asks about, or the figures themselves."""

import math
import random
from collections import Counter
from collections.abc import Callable

from made_study import made_text
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Trial
from tunnelmark.run.progress import JobProgress
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs

_PRECISION = "min_repeats = 4\nmax_repeats = 12\nbring_ups = 4\n"


def _repeats(
    figure: Callable[[Trial], float | None], more: str = "", claim: str = ""
) -> Counter[str]:
    study = parse_study(made_text(_PRECISION + more, more=claim), "made.toml")
    (job,) = jobs(study)
    progress = JobProgress(job)
    count: Counter[str] = Counter()
    while trials := progress.next_trials():
        for trial in trials:
            progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, figure(trial)))
            count[f"{trial.point.tunnel.label} {trial.point.workload.label}"] += 1
    return count


def _drifting(trial: Trial) -> float:
    return math.exp(0.5 * trial.repeat) * (1.0 if trial.point.tunnel.kind == "none" else 1.1)


def test_a_drift_of_both_sides_does_not_keep_a_run_going() -> None:
    assert set(_repeats(_drifting).values()) == {4}


def test_who_asks_for_figures_gets_figures() -> None:
    assert set(_repeats(_drifting, 'of = "figure"').values()) == {12}


def test_a_difference_that_scatters_is_repeated_and_its_neighbour_not() -> None:
    dice = random.Random(1)  # noqa: S311 - figures, no secret

    def figure(trial: Trial) -> float:
        noisy = trial.point.tunnel.kind != "none" and "1000" in trial.point.workload.label
        return dice.lognormvariate(0, 1) if noisy else 1.0

    found = _repeats(figure)
    assert {name: found[name] for name in found if "1000" in name} == {
        "none udp_echo 1000": 12,
        "wireguard udp_echo 1000": 12,
    }
    assert sum(found.values()) == 2 * 12 + 2 * 4


def test_a_tunnel_that_loses_everything_is_not_repeated_for_ever() -> None:
    found = _repeats(lambda trial: 1.0 if trial.point.tunnel.kind == "none" else None)
    assert set(found.values()) == {4}


def test_a_loss_beside_none_is_known_to_what_is_worth_telling() -> None:
    losses = 'metrics = {{ udp_echo = "loss_forward_ratio" }}'.format()
    assert set(_repeats(lambda _: 0.0, losses).values()) == {4}
    dice = random.Random(1)  # noqa: S311 - figures, no secret
    bursts = _repeats(lambda t: 0.0 if t.point.tunnel.kind == "none" else dice.random(), losses)
    assert set(bursts.values()) == {12}


def test_a_run_with_a_time_to_spend_opens_repeats_bit_by_bit() -> None:
    study = parse_study(made_text(_PRECISION), "made.toml")
    (job,) = jobs(study)
    progress = JobProgress(job)
    progress.open_until(4)
    dice = random.Random(1)  # noqa: S311 - figures, no secret
    assert progress.widest() == math.inf
    while trials := progress.next_trials():
        for trial in trials:
            noisy = "1000" in trial.point.workload.label
            value = dice.lognormvariate(0, 1) if noisy else 1.0
            progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, value))
    assert {len(values) for values in progress.values.values()} == {4}
    assert 1 < progress.widest() < math.inf
    progress.open_until(6)
    assert {(t.repeat, t.point.workload.label) for t in progress.next_trials()} == {
        (5, "udp_echo 1000")
    }


_CLAIM = """
[[hypothesis]]
name = "as-quick"
kind = "equivalence"
metric = "{metric}"
groups = [{{ tunnel = "wireguard" }}, {{ tunnel = "none" }}]
where = {{ payload_bytes = 1000 }}
margin = "{margin}"
"""


def _within(share: float) -> Callable[[Trial], float]:
    """Figures whose ratio to the baseline's scatters by a share."""
    dice = random.Random(1)  # noqa: S311 - figures, no secret
    return lambda t: 1.0 if t.point.tunnel.kind == "none" else dice.lognormvariate(0, share)


def _with_claim(metric: str, margin: str) -> Counter[str]:
    claim = _CLAIM.format(metric=metric, margin=margin)
    return _repeats(_within(0.005), claim=claim)


def test_a_claim_with_a_margin_is_watched_where_it_is_made() -> None:
    """5 % is known after four repeats, a hundredth of that is not."""
    assert set(_repeats(_within(0.005)).values()) == {4}
    assert _with_claim("rtt_p50_ns", "0.1 %") == {
        "none udp_echo 100": 4,
        "wireguard udp_echo 100": 4,
        "none udp_echo 1000": 12,
        "wireguard udp_echo 1000": 12,
    }


def test_a_claim_of_another_metric_is_watched_too() -> None:
    found = _with_claim("rtt_p99_ns", "0.1 %")
    assert found["wireguard udp_echo 1000"] == 12
    assert found["wireguard udp_echo 100"] == 4


def test_a_margin_that_is_wide_asks_for_nothing_more() -> None:
    assert set(_with_claim("rtt_p50_ns", "50 %").values()) == {4}


def test_a_margin_may_be_a_figure() -> None:
    # The figures are of 1 ns: half of a margin of 1 ms is always known, of 1 ns is not.
    assert set(_with_claim("rtt_p50_ns", "1 ms").values()) == {4}
    assert _with_claim("rtt_p50_ns", "0.001 ns")["wireguard udp_echo 1000"] == 12
