"""Attempts of a block: what is tried again, what ends it, and what is recorded of each."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from made_results import block_record
from tunnelmark.model.block import BlockRecord, ProofVerdict, Stratum, WireProof
from tunnelmark.model.errors import (
    LabError,
    LabFailedError,
    RefusedError,
    ResultError,
    TunnelError,
)
from tunnelmark.model.job import Job
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.session import Observer, Seen, Where
from tunnelmark.model.trial import Trial, TrialResult
from tunnelmark.model.validity import Validity
from tunnelmark.run import attempts
from tunnelmark.run.attempts import MOST_ATTEMPTS, JobRunner
from tunnelmark.run.events import BlockPhase
from tunnelmark.run.interrupt import Interrupts
from tunnelmark.run.progress import JobProgress
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs

_TEXT = """
format = 1
name = "made"
title = "Made"
[precision]
metric = "rtt_p50_ns"
min_repeats = 4
max_repeats = 4
bring_ups = 2
[[tunnel]]
kind = "wireguard"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 10
payload_bytes = 100
"""


class _Fake:
    """A session whose steps fail as ``faults`` says, at the place ``at``."""

    def __init__(self, observer: Observer, faults: Iterator[Exception | None], at: str) -> None:
        self.observer, self.faults, self.at = observer, faults, at
        self.where, self.seen = Where(), Seen()
        self.downs = 0
        self.numbers: list[int] = []
        self.last: list[WireProof] = []

    def fault(self, at: str) -> None:
        if self.at == at and (error := next(self.faults, None)) is not None:
            raise error

    def up(self, _bring_up: int, attempt: int) -> None:
        self.seen = Seen()
        self.numbers.append(attempt)
        for step in ("lab", "tunnel", "proof", "warm"):
            with self.observer.during(step):
                self.fault(step)
        self.where.placed_on, self.where.stratum = "here", Stratum.NAMESPACES

    def run(self, trial: Trial, attempt: int) -> TrialResult:
        return TrialResult(trial, attempt, time.gmtime(), 0.1, (), Validity(()))  # type: ignore[arg-type]

    def problem(self) -> str | None:
        self.fault("problem")
        return None

    def finish(self) -> None:
        with self.observer.during("proof"):
            for proof in self.last:
                self.seen.end_proofs += (proof,)
                if proof.verdict is ProofVerdict.SAW_WRONG:
                    raise RefusedError(f"the proof by wire failed: {proof.message}")

    def down(self) -> None:
        self.downs += 1
        self.fault("down")


class _Bench:
    """A job that runs without a lab."""

    def __init__(self, folder: Path, at: str, *faults: Exception | None) -> None:
        (self.job,) = jobs(parse_study(_TEXT, "made.toml"))
        self.at, self.faults = at, iter(faults)
        self.last: list[WireProof] = []
        self.events: list[BlockPhase] = []
        self.recorded: list[BlockRecord] = []

        self.took_s: list[float] = []

        def finished(result: TrialResult, took_s: float) -> None:
            self.took_s.append(took_s)
            self.progress.record(result.trial, valid=True, figures=dict.fromkeys(METRICS, 1.0))

        self.progress = JobProgress(self.job)
        self.runner = JobRunner(
            progress=self.progress,
            backend=self,
            directory=folder,
            interrupts=Interrupts(),
            tell=self.events.append,
            trial_progress=lambda *_: None,
            finished=finished,
            recorded=self.recorded.append,
        )

    def open(self, _job: Job, _folder: Path, observer: Observer) -> _Fake:
        self.fake = _Fake(observer, self.faults, self.at)
        self.fake.last = self.last
        return self.fake

    def run(self) -> BlockRecord:
        return self.runner.run()

    def done(self) -> set[str]:
        return self.progress.done


def good() -> WireProof:
    (proof,) = block_record().proofs
    return proof


Made = Callable[..., _Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Made:
    return lambda at, *faults: _Bench(tmp_path, at, *faults)


def test_a_wait_is_reported_and_no_phase_is_charged_for_it(
    bench: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench("nowhere")
    run, waits = _Fake.run, iter([True])
    now = [1000.0]

    def waiting(fake: _Fake, trial: Trial, attempt: int) -> TrialResult:
        if next(waits, False):
            with fake.observer.waiting("others take 31 % of the time"):
                now[0] += 50
        now[0] += 2
        return run(fake, trial, attempt)

    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_Fake, "run", waiting)
    record = one.run()
    seen = [(event.phase, event.message) for event in one.events]
    at = seen.index(("waiting", "others take 31 % of the time"))
    assert seen[at - 1][0] == seen[at + 1][0] == "trials"
    assert (record.seconds["waiting"], record.seconds["trials"]) == (50, 16)
    assert record.wall_s == 66
    # What is left is estimated by what trials took.
    assert one.took_s == [2] * 8


def test_a_block_is_brought_up_as_often_as_the_study_asks(bench: Made) -> None:
    one = bench("nowhere")
    record = one.run()
    assert record.error is None
    assert [(a.bring_up, a.phase, a.reason) for a in record.attempts] == [
        (1, "done", None),
        (2, "done", None),
    ]
    assert len(one.progress.done) == 8
    assert one.fake.downs == 2
    assert record.seconds["proof"] == pytest.approx(
        sum(a.seconds["proof"] for a in record.attempts)
    )


@pytest.mark.parametrize(
    ("at", "phase"),
    [("lab", "lab"), ("tunnel", "tunnel"), ("proof", "proof"), ("warm", "warm")],
)
@pytest.mark.parametrize(
    "error", [TunnelError("was killed"), LabFailedError("was late"), ValueError("odd\nlog")]
)
def test_what_may_be_transient_is_tried_again_and_recorded(
    bench: Made, at: str, phase: str, error: Exception
) -> None:
    one = bench(at, error)
    record = one.run()
    assert record.error is None
    assert [(a.bring_up, a.phase) for a in record.attempts] == [
        (1, phase),
        (1, "done"),
        (2, "done"),
    ]
    assert " ".join(str(error).split()) in str(record.attempts[0].reason)
    assert record.attempts[0].transient
    assert len(one.progress.done) == 8
    assert [event.message for event in one.events if event.phase == "again"] == [
        record.attempts[0].reason
    ]
    # The retry draws other numbers than the attempt that failed.
    assert one.fake.numbers == [1, 2, 3]


@pytest.mark.parametrize("error", [RefusedError("another key"), LabError("no such program")])
def test_what_is_definite_fails_at_once(bench: Made, error: Exception) -> None:
    one = bench("tunnel", error)
    record = one.run()
    assert record.error == str(error)
    assert [(a.phase, a.transient) for a in record.attempts] == [("tunnel", False)]
    assert one.fake.downs == 1


def test_attempts_are_bounded(bench: Made) -> None:
    one = bench("tunnel", *[TunnelError("was killed")] * 100)
    record = one.run()
    assert record.error == f"gave up after {MOST_ATTEMPTS} attempts: was killed"
    assert len(record.attempts) == one.fake.downs == MOST_ATTEMPTS


def test_a_tunnel_that_fails_its_last_proof_ends_its_block(bench: Made) -> None:
    one = bench("nowhere")
    one.last = [replace(good(), verdict=ProofVerdict.SAW_WRONG, message="readable")]
    record = one.run()
    assert record.error == "the proof by wire failed: readable"
    assert [(a.phase, a.disproved) for a in record.attempts] == [("proof", "readable")]
    assert one.fake.downs == 1
    # These count for nothing; those of an attempt in its place do.
    assert sorted(record.attempts[0].trials or ()) == sorted(f"{name}-1" for name in one.done())
    assert len(one.done()) == 4


def test_an_attempt_in_the_place_of_a_disproved_one_is_another(bench: Made) -> None:
    first = bench("nowhere")
    first.last = [replace(good(), verdict=ProofVerdict.SAW_WRONG, message="readable")]
    failed = first.run()
    again = bench("nowhere")
    again.last = [good()]
    again.runner.earlier = failed
    record = again.run()
    assert [(a.bring_up, a.disproved) for a in record.attempts] == [
        (1, "readable"),
        (1, None),
        (2, None),
    ]
    assert [a.trials is None for a in record.attempts] == [False, True, True]


def test_a_last_proof_that_saw_nothing_is_kept_and_ends_nothing(bench: Made) -> None:
    one = bench("nowhere")
    one.last = [replace(good(), verdict=ProofVerdict.COULD_NOT_SEE)]
    record = one.run()
    assert record.error is None
    assert [len(a.end_proofs) for a in record.attempts] == [1, 1]
    assert [a.disproved for a in record.attempts] == [None, None]


def test_a_driver_that_raises_what_it_must_not_ends_its_attempt_with_one_line(
    bench: Made, tmp_path: Path
) -> None:
    one = bench("problem", None, KeyError("state"))
    record = one.run()
    assert record.error is None
    assert [(a.bring_up, a.phase) for a in record.attempts] == [
        (1, "trials"),
        (1, "done"),
        (2, "done"),
    ]
    name = f"logs/{one.job.job_id}/unexpected-1.txt"
    reason = str(record.attempts[0].reason)
    assert reason.startswith("unexpected KeyError in run/attempts.py:")
    assert reason.endswith(f": 'state' (see {name})")
    assert "Traceback" in (tmp_path / name).read_text()
    assert len(one.progress.done) == 8


def test_a_driver_that_cannot_be_taken_down_does_not_keep_the_lab(bench: Made) -> None:
    one = bench("down", RuntimeError("stuck"))
    record = one.run()
    assert record.error is None
    assert record.attempts[0].phase == "down"
    assert one.fake.downs == 2
    assert not [event for event in one.events if event.phase == "again" and not event.message]


def test_the_first_failure_is_the_reason_not_what_follows_from_it(bench: Made) -> None:
    one = bench("tunnel", TunnelError("was killed"))
    opened = one.open

    def stuck(job: Job, folder: Path, observer: Observer) -> _Fake:
        session = opened(job, folder, observer)
        session.down = lambda: (_ for _ in ()).throw(RuntimeError("gone"))  # type: ignore[method-assign]
        return session

    one.open = stuck  # type: ignore[method-assign, assignment]
    record = one.run()
    assert record.attempts[0].reason == "was killed"


def test_a_result_that_cannot_be_written_ends_the_run(bench: Made) -> None:
    one = bench("nowhere")

    def full(_record: BlockRecord) -> None:
        raise ResultError("disk full")

    one.runner.recorded = full
    with pytest.raises(ResultError, match="disk full"):
        one.run()
    assert one.fake.downs == 1


def test_a_lab_is_taken_down_whatever_is_wrong_with_the_listener(bench: Made) -> None:
    one = bench("nowhere")

    def wrong(event: BlockPhase) -> None:
        if event.phase == "down":
            raise KeyError("phase")

    one.runner.tell = wrong
    with pytest.raises(KeyError):
        one.run()
    assert one.fake.downs == 1


def test_a_resumed_block_keeps_the_attempts_of_earlier_sessions(bench: Made) -> None:
    first = bench("warm", *[TunnelError("silent")] * 3)
    failed = first.run()
    assert failed.error
    again = bench("nowhere")
    again.runner.earlier = failed
    record = again.run()
    assert record.error is None
    assert [a.phase for a in record.attempts] == ["warm"] * 3 + ["done"] * 2
    assert record.seconds["down"] > failed.seconds["down"]
    assert again.fake.numbers == [4, 5]
