"""A time to spend goes to all points first, then to those that are known least."""

import random
from collections import Counter

from made_study import made_text
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Trial
from tunnelmark.run.budget import Budget
from tunnelmark.run.progress import JobProgress
from tunnelmark.run.time_left import TimeLeft, expected_s
from tunnelmark.study import Study, parse_study
from tunnelmark.study.plan import jobs

_TEXT = made_text(
    "min_repeats = 4\nmax_repeats = 12\nbring_ups = 4",
    tunnels=[
        'label = "calm"',
        'label = "noisy"\nmtu_bytes = 1400',
        'label = "wild"\nmtu_bytes = 1300',
    ],
)
_SCATTER = {"calm": 0.0001, "noisy": 0.1, "wild": 1.0}


class _Machine:
    """Runs blocks in a time of its own, in which all takes as long as expected."""

    def __init__(self, seconds: float, *, fails: str = "") -> None:
        self.study: Study = parse_study(_TEXT, "made.toml")
        self.progress = {job.job_id: JobProgress(job) for job in jobs(self.study)}
        self.now = 0.0
        self.repeats: Counter[str] = Counter()
        self.fails = fails
        left = TimeLeft(jobs(self.study)[0].expected_s)
        self.budget = Budget(seconds, tuple(self.progress.values()), left, lambda: self.now)
        dice = random.Random(1)  # noqa: S311 - figures, no secret
        for visits, job in enumerate(self.budget.jobs()):
            assert visits < 1000
            progress = self.progress[job.job_id]
            while trials := progress.next_trials():
                if job.block.tunnel.label == self.fails:
                    break
                progress.up = trials[0].bring_up
                self.now += 6.0
                for trial in trials:
                    if progress.is_open(trial):
                        self._run(progress, trial, dice)
                progress.up = None

    def _run(self, progress: JobProgress, trial: Trial, dice: random.Random) -> None:
        tunnel = trial.point.tunnel.label
        self.now += 0.35 + 0.4
        value = dice.lognormvariate(0, _SCATTER[tunnel]) if tunnel in _SCATTER else 1.0
        progress.record(trial, valid=True, figures=dict.fromkeys(METRICS, value))
        self.repeats[tunnel] += 1
        self.budget.trial_done()


def test_least_repeats_for_all_then_where_it_is_known_least() -> None:
    least, most = expected_s(jobs(parse_study(_TEXT, "made.toml")))
    machine = _Machine(least + 0.15 * (most - least))
    assert machine.now <= least + 0.15 * (most - least)
    assert machine.repeats["calm"] == 2 * 4
    assert machine.repeats["wild"] > machine.repeats["noisy"] == 2 * 4
    assert "8 of 12 points did not reach the precision" in machine.budget.words


def test_with_time_enough_the_stop_rule_ends_the_run() -> None:
    machine = _Machine(10_000)
    assert machine.repeats["calm"] == 2 * 4
    assert machine.repeats["wild"] == 2 * 12
    assert machine.now < expected_s(jobs(machine.study))[1]


def test_a_time_that_is_too_short_ends_in_time_and_says_what_is_missing() -> None:
    least, _ = expected_s(jobs(parse_study(_TEXT, "made.toml")))
    machine = _Machine(least / 2)
    assert 0.8 * least / 2 < machine.now <= least / 2
    assert machine.repeats["calm"] == 2 * 4
    assert machine.repeats["wild"] == 0
    assert "fewer repeats than the study's minimum" in machine.budget.words


def test_a_block_that_fails_does_not_eat_the_time_of_the_others() -> None:
    machine = _Machine(10_000, fails="wild")
    assert machine.repeats["wild"] == 0
    assert machine.repeats["noisy"] > 2 * 4
