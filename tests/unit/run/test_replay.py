"""A resume: what counts of what is there, on the same computer and on another."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from made_results import manifest
from made_study import made_text
from tunnelmark.analysis.strata import set_apart
from tunnelmark.model.job import Job
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.validity import Check, Validity
from tunnelmark.run.progress import JobProgress
from tunnelmark.run.replay import replay
from tunnelmark.run.tally import Tally
from tunnelmark.store import Writer, open_result
from tunnelmark.study import parse_study
from tunnelmark.study.plan import first_round, jobs
from tunnelmark.study.points import pair_id

_HERE = {"kernel": "6.1", "memory": "4 GB"}
_THERE = {"kernel": "6.6", "memory": "4 GB"}


def _job() -> Job:
    (job,) = jobs(parse_study(made_text("min_repeats = 3\nmax_repeats = 3"), "made.toml"))
    return job


def _append(
    writer: Writer,
    trials: tuple[Trial, ...],
    rtt_ns: Callable[[int], float],
    spoilt_by: str | None = None,
) -> None:
    for number, trial in enumerate(trials):
        figures = {"rtt_p50_ns": rtt_ns(number)}
        made = TrialResult(
            trial,
            trials[: number + 1].count(trial),
            datetime(2026, 11, 22, tzinfo=UTC),
            1.0,
            (Measurement("total", figures),),
            Validity((Check("made", ok=spoilt_by is None, message=spoilt_by or "fine"),)),
        )
        writer.append(made, pair_id=pair_id(trial.point))


def _replayed(folder: Path, count: int, environment: dict[str, str]) -> tuple[Tally, Path]:
    """Measure some trials here, and go on in an environment."""
    job = _job()
    directory = folder / "result"
    with closing(Writer.create(directory, manifest())) as writer:
        writer.begin("one", _HERE, "tm1")
        _append(writer, first_round(job)[:count], lambda _: 1e6)
    with closing(Writer(directory)) as writer:
        writer.begin("two", environment, "tm2")
        tally = Tally([job])
        replay(open_result(directory), [job], tally, writer.environment)
    return tally, directory


def test_on_the_same_computer_nothing_valid_is_measured_again(tmp_path: Path) -> None:
    tally, _ = _replayed(tmp_path, 5, {**_HERE, "memory": "4 GB less a page"})
    job = _job()
    left = tally.progress(job.job_id).known_trials()
    assert {trial.trial_id for trial in left} == {t.trial_id for t in first_round(job)[5:]}
    assert (tally.valid, tally.trials_done) == (5, 5)


def test_elsewhere_a_job_that_was_not_finished_is_measured_whole(tmp_path: Path) -> None:
    tally, _ = _replayed(tmp_path, 5, _THERE)
    job = _job()
    progress = tally.progress(job.job_id)
    assert len(progress.known_trials()) == len(first_round(job)) == 12
    # No two attempts may have one number.
    again = first_round(job)[0]
    assert progress.attempts[again.trial_id] == 1
    assert (tally.valid, tally.trials_done) == (5, 0)


def test_elsewhere_a_job_that_was_finished_stays(tmp_path: Path) -> None:
    tally, _ = _replayed(tmp_path, 12, _THERE)
    assert tally.progress(_job().job_id).known_trials() == ()
    assert tally.seconds_left == 0.0
    assert tally.trials_done == 12


def _replayed_after_a_full_disk(folder: Path, environment: dict[str, str]) -> JobProgress:
    """Spoil one trial as often as its point bears and once more, measure the others, resume."""
    job = _job()
    spoilt, *others = first_round(job)
    directory = folder / "result"
    with closing(Writer.create(directory, manifest())) as writer:
        writer.begin("one", _HERE, "tm1")
        _append(writer, tuple(others), lambda _: 1e6)
        attempts = (spoilt,) * (job.precision.max_invalid + 1)
        _append(writer, attempts, lambda _: 1e6, "No space left on device")
    with closing(Writer(directory)) as writer:
        writer.begin("two", environment, "tm2")
        tally = Tally([job])
        replay(open_result(directory), [job], tally, writer.environment)
    return tally.progress(job.job_id)


def test_a_point_that_a_full_disk_spoilt_is_measured_by_a_resume(tmp_path: Path) -> None:
    progress = _replayed_after_a_full_disk(tmp_path, _HERE)
    spoilt = first_round(_job())[0]
    assert [trial.trial_id for trial in progress.known_trials()] == [spoilt.trial_id]
    # Its number goes on, so that no two attempts have one.
    assert progress.attempts[spoilt.trial_id] == _job().precision.max_invalid + 1


def test_elsewhere_a_point_that_was_given_up_stays_so(tmp_path: Path) -> None:
    assert _replayed_after_a_full_disk(tmp_path, _THERE).known_trials() == ()


def test_figures_of_two_environments_have_two_names(tmp_path: Path) -> None:
    _, directory = _replayed(tmp_path, 5, _THERE)
    with closing(Writer(directory)) as writer:
        writer.begin("two", _THERE, "tm3")
        key = writer.environment
        trials = tuple(trial for trial in first_round(_job())[5:])
        _append(writer, trials, lambda _: 9e6)
    apart = set_apart(open_result(directory).trials(), ())
    assert set(apart["tunnel"]) == {
        "wireguard",
        "none",
        f"wireguard (in environment {key})",
        f"none (in environment {key})",
    }
    for (name,), rows in apart.group_by("tunnel"):
        expected = 9e6 if "environment" in str(name) else 1e6
        assert set(rows["rtt_p50_ns"]) == {expected}


def test_a_job_that_nobody_has_begun_counts_without_its_trials_being_listed() -> None:
    job = _job()
    tally = Tally([job])
    fresh = (tally.trials_expected, tally.seconds_left)
    tally.progress(job.job_id)
    tally.close(job.job_id)
    assert (tally.trials_expected, tally.seconds_left) == fresh
