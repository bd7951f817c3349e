"""Attempts of a block: what is tried again, what ends it, and what is recorded of each."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import TrialResult
from tunnelmark.model.validity import Check, Validity
from tunnelmark.run import block as under_test
from tunnelmark.run import proving
from tunnelmark.run.block import MOST_ATTEMPTS, BlockRunner
from tunnelmark.run.events import BlockPhase
from tunnelmark.run.interrupt import Interrupts
from tunnelmark.run.progress import BlockProgress
from tunnelmark.study import parse_study
from tunnelmark.study.plan import blocks

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
    """Stands for link, tunnel, baseline and workload at once; ``faults`` says what fails when."""

    is_link = False
    chooses = True
    mtu_bytes = 1500
    payload_sizes = (100,)
    reference = None
    medium = None

    def __init__(self, faults: Iterator[Exception | None], at: str) -> None:
        self.faults, self.at = faults, at
        self.downs = 0
        self.last: list[WireProof] = []
        (self.good,) = block_record().proofs
        self.negotiated = block_record().negotiated
        self.paths = ()

    def fault(self, at: str) -> None:
        if self.at == at and (error := next(self.faults, None)) is not None:
            raise error

    def spec(self, _seed: int) -> None:
        self.fault("lab")

    def up(self, _site: object) -> "_Fake":
        self.fault("tunnel")
        return self

    def check_agreed(self) -> None: ...

    def problem(self) -> str | None:
        self.fault("problem")
        return None

    def down(self) -> None:
        self.downs += 1
        self.fault("down")


class _Bench:
    """A block that runs without a lab."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, at: str, *faults: Exception | None
    ) -> None:
        study = parse_study(_TEXT, "made.toml")
        (block,) = blocks(study)
        self.fake = fake = _Fake(iter(faults), at)
        self.labs_down = 0
        self.events: list[BlockPhase] = []
        self.recorded: list[BlockRecord] = []
        self.seeds: dict[int, int] = {}
        bench = self

        class Lab:
            site = None
            place = type(
                "Place", (), {"placed_on": "here", "limits": {}, "stratum": Stratum.NAMESPACES}
            )()

            def __init__(self, *_: object, **__: object) -> None: ...

            def adopt(self, _medium: object) -> None: ...

            def problem(self) -> None: ...

            def down(self) -> None:
                bench.labs_down += 1

        def proved(_self: BlockRunner, now: Any, *_: object) -> Iterator[Any]:
            bench.seeds[now.number] = _self._seed(now, "proof")
            fake.fault("proof")
            yield fake.good

        def trial(trial: Any, attempt: int, *_: object, **__: object) -> TrialResult:
            return TrialResult(trial, attempt, time.gmtime(), 0.1, (), Validity(()))  # type: ignore[arg-type]

        def finished(result: TrialResult) -> None:
            self.progress.record(result.trial, valid=True, figures=dict.fromkeys(METRICS, 1.0))

        patch.setattr(under_test, "Lab", Lab)
        patch.setattr(under_test, "make", lambda _kinds, _spec: fake)
        patch.setattr(under_test, "run_trial", trial)
        patch.setattr(under_test, "warm_up", lambda *_, **__: fake.fault("warm"))
        patch.setattr(under_test, "measure_floor", lambda *_, **__: None)
        patch.setattr(under_test, "receive_time", lambda *_: "kernel")
        patch.setattr(under_test, "limits_at", lambda *_: None)
        patch.setattr(under_test, "layers_seen", lambda *_: ())
        patch.setattr(under_test, "model_check", lambda *_: Check("made", ok=True, message=""))
        patch.setattr(BlockRunner, "_prove", proved)
        patch.setattr(BlockRunner, "_prove_again", lambda *_: iter(fake.last))
        self.progress = BlockProgress(study, block)
        self.runner = BlockRunner(
            study=study,
            block=block,
            progress=self.progress,
            ledger=None,  # type: ignore[arg-type]
            engine="",
            directory=folder,
            keep_samples=False,
            interrupts=Interrupts(),
            tell=self.events.append,
            trial_progress=lambda *_: None,
            finished=finished,
            recorded=self.recorded.append,
        )

    def run(self) -> BlockRecord:
        return self.runner.run()


Made = Callable[..., _Bench]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return lambda at, *faults: _Bench(tmp_path, monkeypatch, at, *faults)


def test_a_block_is_brought_up_as_often_as_the_study_asks(bench: Made) -> None:
    one = bench("nowhere")
    record = one.run()
    assert record.error is None
    assert [(a.bring_up, a.phase, a.reason) for a in record.attempts] == [
        (1, "done", None),
        (2, "done", None),
    ]
    assert len(one.progress.done) == 8
    assert one.labs_down == 2
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
    assert len(set(one.seeds.values())) == len(one.seeds)


@pytest.mark.parametrize("error", [RefusedError("another key"), LabError("no such program")])
def test_what_is_definite_fails_at_once(bench: Made, error: Exception) -> None:
    one = bench("tunnel", error)
    record = one.run()
    assert record.error == str(error)
    assert [(a.phase, a.transient) for a in record.attempts] == [("tunnel", False)]
    assert one.fake.downs == 2
    assert one.labs_down == 1


def test_attempts_are_bounded(bench: Made) -> None:
    one = bench("tunnel", *[TunnelError("was killed")] * 100)
    record = one.run()
    assert record.error == f"tried {MOST_ATTEMPTS} times, ended by: was killed"
    assert len(record.attempts) == one.labs_down == MOST_ATTEMPTS


def test_a_proof_that_could_not_see_is_repeated_and_one_that_saw_wrong_is_not(
    bench: Made,
) -> None:
    block = bench("nowhere").runner.block
    (good,) = block_record().proofs
    for verdict, kind in (
        (ProofVerdict.COULD_NOT_SEE, TunnelError),
        (ProofVerdict.SAW_WRONG, RefusedError),
    ):
        with pytest.raises(TunnelError) as caught:
            proving.hold(block, replace(good, verdict=verdict))
        assert caught.type is kind


def test_a_tunnel_that_fails_its_last_proof_ends_its_block(bench: Made) -> None:
    one = bench("nowhere")
    one.fake.last = [replace(one.fake.good, verdict=ProofVerdict.SAW_WRONG, message="readable")]
    record = one.run()
    assert record.error == "wireguard: the proof by wire failed: readable"
    assert [(a.phase, a.disproved) for a in record.attempts] == [("proof", "readable")]
    assert one.labs_down == 1


def test_a_last_proof_that_saw_nothing_is_kept_and_ends_nothing(bench: Made) -> None:
    one = bench("nowhere")
    one.fake.last = [replace(one.fake.good, verdict=ProofVerdict.COULD_NOT_SEE)]
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
    name = f"logs/{one.runner.block.block_id}/unexpected-1.txt"
    reason = str(record.attempts[0].reason)
    assert reason.startswith("unexpected KeyError in run/block.py:")
    assert reason.endswith(f": 'state' (see {name})")
    assert "Traceback" in (tmp_path / name).read_text()
    assert len(one.progress.done) == 8


def test_a_driver_that_cannot_be_taken_down_does_not_keep_the_lab(bench: Made) -> None:
    one = bench("down", RuntimeError("stuck"))
    record = one.run()
    assert record.error is None
    assert record.attempts[0].phase == "down"
    assert one.labs_down == 2
    assert one.fake.downs == 4
    assert not [event for event in one.events if event.phase == "again" and not event.message]


def test_the_first_failure_is_the_reason_not_what_follows_from_it(bench: Made) -> None:
    one = bench("tunnel", TunnelError("was killed"))
    one.fake.down = lambda: (_ for _ in ()).throw(RuntimeError("gone"))  # type: ignore[method-assign]
    record = one.run()
    assert record.attempts[0].reason == "was killed"


def test_a_result_that_cannot_be_written_ends_the_run(bench: Made) -> None:
    one = bench("nowhere")

    def full(_record: BlockRecord) -> None:
        raise ResultError("disk full")

    one.runner.recorded = full
    with pytest.raises(ResultError, match="disk full"):
        one.run()
    assert one.labs_down == 1


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
    assert set(again.seeds) == {4, 5}
