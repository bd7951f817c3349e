"""A whole run by a backend that is no lab: what it tells, what is on disk, what a resume does."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from made_results import block_record, manifest
from made_study import made_text
from tunnelmark.cli.copies import Copies
from tunnelmark.model.block import ProofVerdict, Stratum, WireProof
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.job import Job, from_json, to_json
from tunnelmark.model.session import Observer, Seen, Where
from tunnelmark.model.trial import Measurement, Trial, TrialResult
from tunnelmark.model.validity import Check, Validity
from tunnelmark.run.events import BlockPhase, Event, RunEnded, RunStarted, TrialDone
from tunnelmark.run.interrupt import Interrupts
from tunnelmark.run.loop import Loop
from tunnelmark.store import Writer, open_result
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs

_TEXT = made_text(
    "min_repeats = 4\nmax_repeats = 6\nbring_ups = 2",
    tunnels=['label = "a"', 'label = "b"\nmtu_bytes = 1400', 'label = "c"\nmtu_bytes = 1300'],
)


class _Session:
    """Gives the same figure for every trial of a tunnel; dies as asked."""

    def __init__(self, backend: "_Backend", observer: Observer) -> None:
        self.where, self.seen = Where("nowhere", Stratum.NAMESPACES), Seen()
        self._backend, self._observer = backend, observer
        self._is_up = False

    def up(self, _bring_up: int, _attempt: int) -> None:
        self.seen = Seen()
        with self._observer.during("lab"):
            self._is_up = True

    def run(self, trial: Trial, attempt: int) -> TrialResult:
        assert self._is_up
        self._backend.trials.append((trial.trial_id, attempt))
        if len(self._backend.trials) == self._backend.dies_at:
            raise KeyboardInterrupt
        return TrialResult(
            trial,
            attempt,
            datetime.now(UTC),
            0.1,
            (Measurement("total", {"rtt_p50_ns": 1e6 * len(trial.point.tunnel.label)}),),
            Validity((Check("made", ok=True, message="fine"),)),
            {"measuring_s": 0.05},
        )

    def problem(self) -> str | None:
        return None

    def finish(self) -> None:
        if self._backend.last is not None:
            with self._observer.during("proof"):
                self.seen.end_proofs = (self._backend.last,)
                raise RefusedError("the proof by wire failed")

    def down(self) -> None:
        self._is_up = False


class _Backend:
    def __init__(self, dies_at: int = 0) -> None:
        self.dies_at = dies_at
        self.trials: list[tuple[str, int]] = []
        self.opened: list[str] = []
        self.last: WireProof | None = None
        """What the last proof of each attempt sees, and fails by."""

    def open(self, job: Job, _folder: Path, observer: Observer) -> _Session:
        self.opened.append(job.job_id)
        return _Session(self, observer)


def _jobs() -> list[Job]:
    """Return jobs as a worker elsewhere has them: from JSON."""
    return [from_json(to_json(job)) for job in jobs(parse_study(_TEXT, "made.toml"))]


def _run(
    directory: Path, backend: _Backend, *, budget_s: float | None = None
) -> tuple[list[Event], Loop]:
    resumed = directory.exists()
    writer = Writer(directory) if resumed else Writer.create(directory, manifest())
    events: list[Event] = []
    with closing(writer):
        writer.begin("here", {"kernel": "6.1"}, "tm1")
        loop = Loop(_jobs(), backend, writer, events.append, Interrupts(), budget_s=budget_s)
        loop.run(resumed=resumed)
    return events, loop


def test_a_run_needs_no_lab(tmp_path: Path) -> None:
    backend = _Backend()
    events, _ = _run(tmp_path / "result", backend)
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert (started.blocks, started.trials_min, started.trials_max) == (3, 48, 72)
    assert (ended.outcome, ended.valid_trials, ended.invalid_trials) == ("complete", 48, 0)
    assert ended.measuring_s == pytest.approx(48 * 0.05)
    done = [event for event in events if isinstance(event, TrialDone)]
    assert [event.trials_done for event in done] == list(range(1, 49))
    assert {event.trials_expected for event in done} == {48}
    lefts = [event.time_left_s for event in done]
    assert lefts[-1] == 0.0
    assert started.expected_s > lefts[0] > lefts[24] > 0.0
    result = open_result(tmp_path / "result")
    assert result.manifest.outcome == "complete"
    assert sorted(result.trials()["trial_id"]) == sorted(name for name, _ in backend.trials)
    assert {path.suffix for path in (tmp_path / "result" / "trials").iterdir()} == {".parquet"}
    assert {block.placed_on for block in result.blocks.values()} == {"nowhere"}


@pytest.mark.parametrize("dies_at", [1, 16, 17, 48])
def test_after_a_kill_every_trial_is_measured_once(tmp_path: Path, dies_at: int) -> None:
    directory = tmp_path / "result"
    first, second = _Backend(dies_at), _Backend()
    with pytest.raises(KeyboardInterrupt):
        _run(directory, first)
    assert open_result(directory).trials().height == dies_at - 1
    _run(directory, second)
    names = open_result(directory).trials()["trial_id"]
    assert names.n_unique() == names.len() == 48
    undone = _Backend()
    _run(tmp_path / "whole", undone)
    kept = {name for name, _ in first.trials[:-1]}
    # In the order that the seed gave them, resume or not.
    assert [name for name, _ in second.trials] == [n for n, _ in undone.trials if n not in kept]
    assert open_result(directory).manifest.outcome == "complete"


def test_a_resume_repeats_what_the_last_proof_made_worthless_and_its_trials_count(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "result"
    first = _Backend()
    (proof,) = block_record().proofs
    first.last = replace(proof, verdict=ProofVerdict.SAW_WRONG, message="readable")
    _run(directory, first)
    before = open_result(directory).trials().filter(~pl.col("is_baseline"))
    assert before.height > 0
    assert not before["valid"].any()
    second = _Backend()
    events, _ = _run(directory, second)
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert ended.outcome == "complete"
    trials = open_result(directory).trials()
    valid = trials.filter("valid")
    assert valid["trial_id"].n_unique() == valid.height == 48
    assert trials.filter(~pl.col("valid")).height == before.height
    third = _Backend()
    _run(directory, third)
    assert third.trials == []


def test_a_listener_that_nobody_reads_ends_no_run(tmp_path: Path) -> None:
    def closed(_event: Event) -> None:
        raise BrokenPipeError

    directory = tmp_path / "result"
    with closing(Writer.create(directory, manifest())) as writer:
        ended = Loop(_jobs(), _Backend(), writer, closed, Interrupts()).run(resumed=False)
    assert (ended.outcome, ended.valid_trials, ended.message) == ("complete", 48, "")


def test_a_job_is_on_the_object_store_before_the_next_one_begins(tmp_path: Path) -> None:
    first, second, _ = (job.job_id for job in _jobs())
    directory = tmp_path / "result"
    copies = Copies((tmp_path / "store").as_uri(), print)
    there: dict[str, set[str]] = {}

    def look(event: Event) -> None:
        if isinstance(event, BlockPhase) and event.phase == "lab":
            store = tmp_path / "store" / "result"
            names = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
            there.setdefault(event.block_id, names)

    with closing(Writer.create(directory, manifest())) as writer:
        Loop(_jobs(), _Backend(), writer, copies.listening(look), Interrupts()).run(resumed=False)
    assert there[first] == set()
    assert {f"trials/{first}.parquet", f"blocks/{first}.json", "manifest.json"} <= there[second]


def test_only_the_job_under_way_is_in_memory(tmp_path: Path) -> None:
    most = 0
    backend = _Backend()
    directory = tmp_path / "result"
    with closing(Writer.create(directory, manifest())) as writer:

        def look(_event: Event) -> None:
            nonlocal most
            most = max(most, len(loop._tally._open))

        loop = Loop(_jobs(), backend, writer, look, Interrupts())
        loop.run(resumed=False)
        assert most == 1
        assert not loop._tally._open


def test_a_time_to_spend_ends_a_run_in_order(tmp_path: Path) -> None:
    events, _ = _run(tmp_path / "result", _Backend(), budget_s=0.0)
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert ended.valid_trials == 0
    assert "12 of 12 points have fewer repeats" in ended.message
