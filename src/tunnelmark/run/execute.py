"""A whole run: check, blocks, end; everything it makes is removed, whatever ends it."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from tunnelmark.hosts.ledger import Ledger, read_journal
from tunnelmark.lab.clean import clean, find_leftovers
from tunnelmark.lab.placement import Placement, Wanted
from tunnelmark.model.block import BlockRecord, time_by_place
from tunnelmark.model.errors import ResultError
from tunnelmark.model.trial import Block, Trial, TrialResult
from tunnelmark.run.block import BlockRunner, check_drivers
from tunnelmark.run.budget import Budget
from tunnelmark.run.environment import describe
from tunnelmark.run.events import (
    BlockPhase,
    Listener,
    RunEnded,
    RunStarted,
    TrialDone,
    TrialProgress,
)
from tunnelmark.run.interrupt import Interrupted, Interrupts
from tunnelmark.run.progress import BlockProgress
from tunnelmark.run.time_left import Need, TimeLeft
from tunnelmark.run.trial import INTERRUPTED
from tunnelmark.store import Manifest, Writer, open_result
from tunnelmark.store.layout import FORMAT
from tunnelmark.study import Study, parse_study
from tunnelmark.study.plan import blocks as plan_blocks
from tunnelmark.study.plan import pair_id, repeat
from tunnelmark.workloads.base import Progress


def execute(
    study: Study | None,
    *,
    results_dir: Path,
    listener: Listener,
    keep_samples: bool,
    engine: str,
    seed: int | None = None,
    resume: Path | None = None,
    budget_s: float | None = None,
    wanted: Wanted = "auto",
    say: Callable[[str], None] = lambda _step: None,
) -> RunEnded:
    """Run a study, or go on with an interrupted one (``resume``; ``study`` is then None).

    ``budget_s`` ends the run in time, and divides it over the points. ``wanted`` is where labs
    stand; ``say`` is told what takes time before the run starts.
    Raises ``StudyError``, ``LabError`` or ``ResultError`` for what makes the whole run impossible;
    a block that fails is recorded and the run goes on.
    """
    clean(find_leftovers())
    if resume is not None:
        study = _study_of(resume)
    if study is None:
        raise ValueError("needs a study or a directory to resume")
    if seed is not None and resume is None:
        study = replace(study, seed=seed)
    try:
        with (
            Interrupts() as interrupts,
            Ledger() as ledger,
            Placement(ledger, engine=engine, wanted=wanted, say=say) as placement,
        ):
            return _Run(
                study, ledger, listener, engine, interrupts, placement, keep_samples=keep_samples
            ).run(results_dir, resume, budget_s)
    except Interrupted:
        # Asked twice, or before there was anything to record.
        raise KeyboardInterrupt from None


class _Run:
    def __init__(  # noqa: PLR0917 - what a run has
        self,
        study: Study,
        ledger: Ledger,
        listener: Listener,
        engine: str,
        interrupts: Interrupts,
        placement: Placement,
        *,
        keep_samples: bool,
    ) -> None:
        self._ledger = ledger
        self._listener = listener
        self._engine = engine
        self._interrupts = interrupts
        self._keep_samples = keep_samples
        self._placement = placement
        self._skipped, programs = check_drivers(study, placement)
        runnable = tuple(t for t in study.tunnels if t.label not in self._skipped)
        self._study = replace(study, tunnels=runnable)
        self._environment = {**describe(engine, programs), **placement.describe()}
        self._progress: dict[str, BlockProgress] = {}
        self._counts = {"valid": 0, "invalid": 0}
        self._earlier: dict[str, BlockRecord] = {}
        self._budget: Budget | None = None
        self._current: str | None = None
        """Block that is being run."""
        self._needs: dict[str, Need] = {}
        """By block; only that of the current one changes, and there may be thousands."""
        self._left = TimeLeft(study)
        self._measuring_s = 0.0
        self._start = time.monotonic()

    def run(self, results_dir: Path, resume: Path | None, budget_s: float | None) -> RunEnded:
        writer = Writer(resume) if resume else self._create(results_dir)
        try:
            blocks = plan_blocks(self._study)
            return self._run(writer, blocks, resumed=resume is not None, budget_s=budget_s)
        except BaseException as error:
            with suppress(ResultError):  # a full disk may be the very reason
                writer.update(
                    ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
                    outcome="interrupted" if isinstance(error, Interrupted) else "failed",
                )
            raise
        finally:
            writer.close()

    def _run(
        self, writer: Writer, blocks: tuple[Block, ...], *, resumed: bool, budget_s: float | None
    ) -> RunEnded:
        for block in blocks:
            self._progress[block.block_id] = BlockProgress(self._study, block)
        if resumed:
            self._replay(writer.directory)
        if budget_s is not None:
            progress = tuple(self._progress.values())
            self._budget = Budget(budget_s, progress, self._left, time.monotonic)
        self._needs = {name: self._need(one) for name, one in self._progress.items()}
        points = sum(len(block.points) for block in blocks)
        precision = self._study.precision
        self._listener(
            RunStarted(
                self._study.name,
                writer.manifest.run_id,
                str(writer.directory),
                len(blocks),
                points * precision.min_repeats,
                points * precision.max_repeats,
                self._left_s(),
                tuple(self._skipped.items()),
            )
        )
        errors = []
        for block in blocks if self._budget is None else self._budget.blocks():
            if self._interrupts.requested():
                break
            if not self._progress[block.block_id].next_trials():
                continue  # finished before the interruption
            self._current = block.block_id
            record = self._runner(writer, block).run()
            self._measuring_s += record.seconds.get("measuring", 0.0)
            if earlier := self._earlier.get(block.block_id):
                self._measuring_s -= earlier.seconds.get("measuring", 0.0)
            writer.write_block(record)
            self._tell_allowed(writer)
            # A block that gets more of a time to spend is run again.
            self._earlier[block.block_id] = record
            if record.error:
                errors.append(f"{record.tunnel} over {record.link}: {record.error}")
        outcome = (
            "interrupted" if self._interrupts.requested() else "failed" if errors else "complete"
        )
        ended = RunEnded(
            str(writer.directory),
            outcome,  # type: ignore[arg-type]
            "; ".join(errors) or self._unfinished(),
            self._counts["valid"],
            self._counts["invalid"],
            time.monotonic() - self._start,
            self._measuring_s,
            time_by_place(self._earlier.values()),
        )
        writer.update(
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            outcome=outcome,
            wall_s=(writer.manifest.wall_s or 0.0) + ended.wall_s,
            measuring_s=(writer.manifest.measuring_s or 0.0) + ended.measuring_s,
        )
        self._listener(ended)
        return ended

    def _tell_allowed(self, writer: Writer) -> None:
        """Note in the environment what this computer's namespaces may use because of this run."""
        journal = read_journal(self._ledger.directory)
        names = sorted({entry.name for entry in journal if entry.kind == "tcp_allowed"})
        environment = {**writer.manifest.environment, "tcp allowed by the run": " ".join(names)}
        if names and environment != writer.manifest.environment:
            writer.update(environment=environment)

    def _runner(self, writer: Writer, block: Block) -> BlockRunner:
        return BlockRunner(
            study=self._study,
            block=block,
            progress=self._progress[block.block_id],
            ledger=self._ledger,
            engine=self._engine,
            directory=writer.directory,
            keep_samples=self._keep_samples,
            interrupts=self._interrupts,
            tell=self._tell,
            trial_progress=self._trial_progress,
            finished=lambda result: self._finished(writer, result),
            recorded=lambda record: self._recorded(writer, record),
            earlier=self._earlier.get(block.block_id),
            place=lambda logs: self._placement.place(block.tunnel.label, logs, block.device),
        )

    def _recorded(self, writer: Writer, record: BlockRecord) -> None:
        writer.write_block(record)
        last = record.attempts[-1]
        if last.phase == "done":
            self._left.bring_up_done(last.seconds)

    def _tell(self, event: BlockPhase) -> None:
        self._listener(event)

    def _trial_progress(self, trial: Trial, progress: Progress) -> None:
        self._listener(TrialProgress(trial.trial_id, progress.done_ratio, progress.figures))

    def _finished(self, writer: Writer, result: TrialResult) -> None:
        trial = result.trial
        writer.append(result, pair_id=pair_id(trial.point))
        figures = dict(result.measurements[0].metrics) if result.measurements else {}
        valid = result.validity.valid
        workload = trial.point.workload
        metric = self._study.precision.metric_of(workload.kind)
        self._progress[trial.block_id].record(trial, valid=valid, figures=figures)
        self._counts["valid" if valid else "invalid"] += 1
        self._left.trial_done(trial, result.duration_s)
        if self._budget is not None:
            self._budget.trial_done()
        self._listener(
            TrialDone(
                trial_id=trial.trial_id,
                tunnel=trial.point.tunnel.label,
                workload=workload.label,
                point=workload.params,
                repeat=trial.repeat,
                attempt=result.attempt,
                valid=valid,
                reasons=result.validity.reasons,
                figures=figures,
                metric=metric,
                trials_done=sum(len(p.done) for p in self._progress.values()),
                trials_expected=sum(p.expected_trials for p in self._progress.values()),
                time_left_s=self._left_s(),
            )
        )

    def _left_s(self) -> float:
        if self._current is not None:
            self._needs[self._current] = self._need(self._progress[self._current])
        left = sum(map(self._left.of, self._needs.values()))
        return left if self._budget is None else max(0.0, min(left, self._budget.seconds))

    def _need(self, progress: BlockProgress) -> Need:
        return self._left.need(progress.known_trials(), progress.up)

    def _unfinished(self) -> str:
        given_up = sum(len(progress.given_up) for progress in self._progress.values())
        words = [f"{given_up} points were given up after invalid trials"] if given_up else []
        if self._budget is not None and self._budget.words:
            words.append(self._budget.words)
        return "; ".join(words)

    def _create(self, results_dir: Path) -> Writer:
        study, now = self._study, datetime.now(UTC)
        run_id = self._ledger.run_id
        directory = results_dir / f"{study.name}-{now:%Y%m%dT%H%M%SZ}-{run_id}"
        return Writer.create(
            directory,
            Manifest(
                format=FORMAT,
                study=study.name,
                title=study.title,
                description=study.description,
                study_text=study.text,
                study_source=study.source,
                scale=study.scale,
                study_sha256=hashlib.sha256(study.text.encode()).hexdigest(),
                run_id=run_id,
                seed=study.seed,
                confidence=study.precision.confidence,
                precision_metric=study.precision.metric,
                started_at=now.isoformat(timespec="seconds"),
                environment=self._environment,
                skipped=self._skipped,
            ),
        )

    def _replay(self, directory: Path) -> None:
        """Enter what an interrupted run has on disk, so that nothing valid is measured again."""
        result = open_result(directory)
        self._earlier = dict(result.blocks)
        trials = result.trials().filter(pl.col("path") == "total")
        known = {
            trial.trial_id: trial
            for progress in self._progress.values()
            for number in range(1, self._study.precision.max_repeats + 1)
            for trial in repeat(self._study, progress.block, progress.block.points, number)
        }
        for row in trials.iter_rows(named=True):
            trial = known.get(row["trial_id"])
            if trial is None:
                continue  # of a tunnel that cannot run here any more
            progress = self._progress[trial.block_id]
            progress.record(trial, valid=row["valid"], figures=row, interrupted=_interrupted(row))
            self._counts["valid" if row["valid"] else "invalid"] += 1


def _interrupted(row: Mapping[str, Any]) -> bool:
    return any(check["name"] == INTERRUPTED and not check["ok"] for check in _checks(row))


def _checks(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        found: list[Mapping[str, Any]] = json.loads(row["checks"])
        return [{"name": str(check["name"]), "ok": bool(check["ok"])} for check in found]
    except (ValueError, TypeError, KeyError) as error:
        raise ResultError(f"trial {row['trial_id']}: checks are damaged: {error}") from error


def _study_of(directory: Path) -> Study:
    manifest = open_result(directory).manifest
    if hashlib.sha256(manifest.study_text.encode()).hexdigest() != manifest.study_sha256:
        raise ResultError(f"{directory}: the study in the manifest was changed")
    study = parse_study(manifest.study_text, manifest.study_source, manifest.scale)
    return replace(study, seed=manifest.seed)
