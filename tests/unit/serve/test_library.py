"""How far a run has come, by what is on disk."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from synthetic import Design

from made_results import START, block_record, manifest, trial_result
from tunnelmark.model.block import Attempt, ProofVerdict
from tunnelmark.serve.library import Library
from tunnelmark.serve.seen import Seen, Watch
from tunnelmark.sim.backend import BACKEND
from tunnelmark.store import Result, Writer
from tunnelmark.store.result import JobFiles
from tunnelmark.study import parse_study
from tunnelmark.study.points import blocks, pair_id

DESIGN = Design()
"""Two jobs of 6 points each, each point at least 4 times."""


@pytest.fixture
def seen(tmp_path: Path) -> Callable[..., Seen]:
    """Write a result with trials at so many seconds after the start; show how far it is."""

    def show(*sittings: tuple[float, ...], text: str = DESIGN.text, **changes: object) -> Seen:
        writer = Writer.create(tmp_path / "now", manifest(study_text=text, **changes))
        repeat = 0
        for number, starts_s in enumerate(sittings):
            writer.begin("here", {}, f"tm{number}")
            for start_s in starts_s:
                repeat += 1
                one = trial_result("openvpn", 64, repeat, {"rtt_p50_ns": 2e6})
                object.__setattr__(one, "started_at", START + timedelta(seconds=start_s))
                writer.append(one, pair_id=pair_id(one.trial.point))
        writer.close()
        return Library(tmp_path).seen("now")

    return show


def test_the_minimum_is_of_the_jobs_that_a_result_is_limited_to(seen: Callable[..., Seen]) -> None:
    first, _second = blocks(parse_study(DESIGN.text, "made.toml"))
    assert seen(jobs=(first.block_id,)).least == 24


def test_jobs_of_which_nothing_can_be_run_are_not_waited_for(seen: Callable[..., Seen]) -> None:
    first, _second = blocks(parse_study(DESIGN.text, "made.toml"))
    assert seen(omitted=(first.block_id,)).least == 24


def test_points_that_are_not_simulated_are_not_waited_for(seen: Callable[..., Seen]) -> None:
    # A tunnel may be skipped over one link and run over the other: its jobs say which.
    design = Design(links=2, more='[[workload]]\nkind = "dns"\n')
    text = design.text.replace(
        "[precision]\n", '[precision]\nmetrics = { dns = "dns_latency_p50_ns" }\n'
    )
    first, *_others = blocks(parse_study(text, "made.toml"))
    assert len(first.points) == 8
    found = seen(
        text=text,
        environment={"backend": BACKEND},
        skipped={"workload dns": "is not simulated", "a": "does not fit over link 0"},
        omitted=(first.block_id,),
    )
    assert found.least == 3 * 6 * 4


def test_the_pace_is_that_of_the_last_sitting(seen: Callable[..., Seen]) -> None:
    found = seen((0.0,), (86_400.0,))
    assert found.least == 48
    assert found.left_s == pytest.approx(46 * 1.0)


def test_a_sitting_without_a_trial_has_no_pace_of_its_own(seen: Callable[..., Seen]) -> None:
    assert seen((0.0, 9.0), ()).left_s == pytest.approx(5.0 * 46)


def test_only_the_job_that_has_a_new_trial_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All jobs of a run were read after each of its trials, on the computer that measures."""
    read: list[str] = []
    trials_of = Result.trials_of

    def noted(result: Result, job: JobFiles) -> pl.DataFrame:
        read.extend({path.stem for path in (job.sealed, job.journal) if path is not None})
        return trials_of(result, job)

    monkeypatch.setattr(Result, "trials_of", noted)
    writer = Writer.create(tmp_path / "now", manifest(study_text=DESIGN.text))
    writer.begin("here", {}, "tm0")
    watch = Watch(tmp_path / "now")

    def added(block: str, repeat: int, *, valid: bool = True) -> Seen:
        one = trial_result("openvpn", 64, repeat, {"rtt_p50_ns": 2e6}, block=block, valid=valid)
        writer.append(one, pair_id=pair_id(one.trial.point))
        read.clear()
        found = watch.look()
        assert found == replace(Watch(tmp_path / "now").look(), written_at=found.written_at)
        return found

    added("b1", 1)
    writer.seal("b1")
    added("b2", 2)
    assert read.count("b1") == 2
    assert added("b2", 3, valid=False).invalid == 1
    assert read.count("b2") == 2
    assert read.count("b1") == 1
    # A job whose proof fails when its trials are done has no valid one any more.
    record = block_record()
    wrong = replace(record.proofs[0], verdict=ProofVerdict.SAW_WRONG)
    last = Attempt(1, "proof", "why", transient=False, seconds={}, end_proofs=(wrong,))
    writer.write_block(replace(record, attempts=(last,)))
    found = watch.look()
    assert (found.valid, found.invalid) == (1, 2)
    writer.close()
