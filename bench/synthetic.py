"""Result directories whose truth is known: a design and what is true in, a run's trials out.

The run is the real one as far as it is pure: the study's plan, its bring-ups and its stop rule
decide which trials there are; only what a trial measured is drawn. Everything follows from a seed.
``python bench/synthetic.py DIRECTORY --points 10000 --repeats 5`` writes a large result.
"""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from tunnelmark.model.block import BlockRecord
from tunnelmark.model.job import Job
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import BASELINE, Block, Point, Trial
from tunnelmark.run.progress import JobProgress
from tunnelmark.store import Manifest, Result, Writer
from tunnelmark.store.blocks import write_block
from tunnelmark.store.layout import FORMAT
from tunnelmark.store.rows import METRIC_SCHEMA, SCHEMA, columns_of
from tunnelmark.study import Study, parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.study.points import pair_id

START: Final = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
DRAWN: Final[Mapping[str, float]] = {
    "goodput_bit_s": 5e6,
    "rtt_p50_ns": 41e6,
    "rtt_p99_ns": 60e6,
}
"""Rates and times that are drawn, and their level without a tunnel."""
LOSSES: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_TRIAL_S: Final = 1.0


@dataclass(frozen=True)
class Design:
    """What is asked: every tunnel at every size over every link, beside its baseline."""

    tunnels: tuple[str, ...] = ("a", "b")
    links: int = 1
    payloads_bytes: tuple[int, ...] = (64, 512, 1372)
    precision: str = 'metric = "rtt_p50_ns"\nrelative_half_width = "2 %"\n'
    min_repeats: int = 4
    max_repeats: int = 8
    bring_ups: int = 2
    more: str = ""
    """Further text of the study, such as its hypotheses."""
    workers: int = 1
    """Computers, which take the blocks in turn."""
    handed_on: bool = False
    """Whether they take the bring-ups of each block in turn, as when a run is resumed elsewhere."""

    @property
    def text(self) -> str:
        """Return the study file."""
        # No two tunnels of a study may be the same; what they are does not matter here.
        tunnels = "".join(
            f'[[tunnel]]\nkind = "wireguard"\nlabel = "{label}"\nmtu_bytes = {1420 - number}\n'
            for number, label in enumerate(self.tunnels)
        )
        links = "".join(
            f'[[link]]\nkind = "serial"\nrate = "{8 + n} Mbit/s"\nlabel = "link {n}"\n'
            for n in range(self.links)
        )
        return (
            'format = 1\nname = "synthetic"\ntitle = "Synthetic"\nseed = 1\n'
            f"[precision]\n{self.precision}"
            f"min_repeats = {self.min_repeats}\nmax_repeats = {self.max_repeats}\n"
            f"bring_ups = {self.bring_ups}\n"
            f'{tunnels}{links}[[workload]]\nkind = "udp_echo"\ngap = "10 ms"\npackets = 100\n'
            f"payload_bytes = {list(self.payloads_bytes)}\n{self.more}"
        )


@dataclass(frozen=True)
class Truth:
    """What is put in, and how it scatters."""

    effects: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(tunnel, metric) to its difference from no tunnel: ratio minus 1 for rates and times, a
    difference of shares for losses."""
    repeats: float = 0.02
    """Standard deviation between repeats, of the logarithm."""
    bring_ups: float = 0.0
    """The same between bring-ups, half of its variance common to all points of a bring-up."""
    workers: float = 0.0
    """The same between workers, for the tunnels and for no tunnel each its own."""
    drift: float = 0.0
    """Growth of every rate and time over the whole run, of the logarithm."""
    unequal: float = 1.0
    """How many times as much a tunnel scatters as no tunnel."""
    loss: float = 0.0
    """Share of packets that is lost without a tunnel, each way."""
    burst: float = 1.0
    """Mean number of packets lost together: above 1 losses scatter more than a binomial."""
    packets: int = 1000
    lost: frozenset[tuple[str, int]] = frozenset()
    """(tunnel, payload) where no packet ever passes."""
    invalid: float = 0.0
    """Share of attempts that are invalid."""


class Made(Result):
    """A result that never was on a disk; what reads a result directory reads it too."""

    def __init__(
        self, manifest: Manifest, records: Mapping[str, BlockRecord], frame: pl.DataFrame
    ) -> None:
        self.directory = Path("synthetic")
        self.manifest = manifest
        self.blocks = records
        self._frame = frame

    def trials(self) -> pl.DataFrame:
        return self._frame


@cache
def planned(design: Design) -> tuple[Study, tuple[Job, ...]]:
    """Return the study of a design and its jobs."""
    study = parse_study(design.text, "synthetic.toml")
    return study, jobs(study)


def simulate(design: Design, truth: Truth, seed: int, *, environment: str = "6.1") -> Made:
    """Run a study in which ``truth`` holds; the same seed gives the same result."""
    _, plan = planned(design)
    dice = np.random.default_rng(seed)
    most = sum(len(job.block.points) for job in plan) * design.max_repeats
    rows: list[dict[str, Any]] = []
    of_workers = np.zeros((design.workers, 2, len(DRAWN)))
    if truth.workers:
        of_workers = truth.workers * dice.standard_normal(of_workers.shape)
    for number, planned_job in enumerate(plan):
        job = replace(planned_job, seed=seed)
        block = job.block
        drawn = _Drawn(design, truth, block, dice)
        progress = JobProgress(job)
        while trials := progress.next_trials():
            for trial in trials:
                if trial.point.point_id in progress.given_up:
                    continue
                turn = trial.bring_up if design.handed_on else number
                worker = turn % design.workers
                tunnel = int(trial.point.tunnel.kind != BASELINE)
                figures, counts = drawn.trial(trial, len(rows) / most, of_workers[worker, tunnel])
                valid = not truth.invalid or bool(dice.random() >= truth.invalid)
                rows.append(
                    {
                        **_place(trial.point),
                        "worker": f"worker{worker}",
                        "block_id": block.block_id,
                        "trial_id": trial.trial_id,
                        "repeat": trial.repeat,
                        "bring_up": trial.bring_up,
                        "attempt": progress.attempts[trial.trial_id] + 1,
                        "started_at": START + timedelta(seconds=_TRIAL_S * len(rows)),
                        "valid": valid,
                        "reasons": [] if valid else ["drawn invalid"],
                        "checks": _VALID if valid else _INVALID,
                        "details": counts,
                        **figures,
                    }
                )
                progress.record(trial, valid=valid, figures=figures)
    records = {job.job_id: _record(job.block) for job in plan}
    return Made(_manifest(design, seed, environment), records, _frame(rows))


def write(made: Made, directory: Path, *, evidence_bytes: int = 0) -> Path:
    """Write a result directory, with ``evidence_bytes`` of details a row as real ones have."""
    writer = Writer.create(directory, made.manifest)
    writer.close()
    frame = made.trials().select(
        c for c in made.trials().columns if c in {*SCHEMA, *METRICS} or c.startswith("param_")
    )
    if evidence_bytes:
        # Evidence is different in each trial, so that it compresses as the real one does.
        dice = np.random.default_rng(1)
        filler = [dice.integers(0, 10**6, evidence_bytes // 8).tolist() for _ in range(64)]
        texts = pl.Series([json.dumps(one)[1:-1] for one in filler])
        pick = texts.gather(np.arange(frame.height) % len(filler))
        details = frame["details"].str.strip_suffix("}") + ', "samples": [' + pick + "]}"
        frame = frame.with_columns(details.alias("details"))
    for (block_id,), rows in frame.partition_by("block_id", as_dict=True).items():
        rows.write_parquet(directory / "trials" / f"{block_id}.parquet")
    for record in made.blocks.values():
        write_block(directory, record)
    return directory


def large(points: int, repeats: int) -> Design:
    """Return a design with so many points in 200 blocks, or fewer."""
    per_block = max(1, points // 200 // 2)
    return Design(
        tunnels=tuple("abcdefghij"),
        links=max(1, points // (10 * 2 * per_block)),
        payloads_bytes=tuple(range(64, 64 + per_block)),
        min_repeats=repeats,
        max_repeats=repeats,
    )


class _Drawn:
    """All that the trials of one block measure, drawn beforehand."""

    def __init__(
        self, design: Design, truth: Truth, block: Block, dice: np.random.Generator
    ) -> None:
        self._design, self._truth = design, truth
        self._at = {point.point_id: number for number, point in enumerate(block.points)}
        count, metrics = len(block.points), len(DRAWN)
        tunnel = np.array([p.tunnel.kind != BASELINE for p in block.points])
        factor = np.where(tunnel, truth.unequal, 1.0)[:, None, None]
        own = dice.standard_normal((count, design.max_repeats, metrics)) * truth.repeats * factor
        self._logs = own + self._levels(block)[:, None, :]
        if truth.bring_ups:
            precision = planned(design)[0].precision
            number = np.array([precision.bring_up_of(n + 1) - 1 for n in range(design.max_repeats)])
            common = dice.standard_normal((2, number[-1] + 1, metrics))[tunnel.astype(int)]
            each = dice.standard_normal((count, number[-1] + 1, metrics))
            up = (common + each) * (truth.bring_ups / np.sqrt(2))
            self._logs += up[:, number, :]
        self._lost = self._losses(block, dice)

    def trial(
        self, trial: Trial, elapsed: float, worker: Any
    ) -> tuple[dict[str, float | None], str]:
        """Return the figures and the counts of one; ``elapsed`` is the share of the run before.

        ``worker`` is what its worker adds to the logarithms.
        """
        at, repeat = self._at[trial.point.point_id], trial.repeat - 1
        sent = self._truth.packets
        where = (trial.point.tunnel.label, int(str(trial.point.workload.columns["payload_bytes"])))
        if where in self._truth.lost:
            figures: dict[str, float | None] = {"goodput_bit_s": 0.0, "loss_forward_ratio": 1.0}
            return figures, _counts(sent, 0, 0)
        logs = self._logs[at, repeat] + self._truth.drift * elapsed + worker
        found = dict(zip(DRAWN, np.exp(logs).tolist(), strict=True))
        forward, reverse = self._lost[at, repeat].tolist()
        arrived = sent - forward
        back = max(0, arrived - reverse)
        found["loss_forward_ratio"] = forward / sent
        if arrived:
            found["loss_reverse_ratio"] = (arrived - back) / arrived
        return found, _counts(sent, arrived, back)

    def _levels(self, block: Block) -> Any:
        return np.array(
            [
                [
                    np.log(level)
                    + np.log1p(self._truth.effects.get((point.tunnel.label, metric), 0.0))
                    for metric, level in DRAWN.items()
                ]
                for point in block.points
            ]
        )

    def _losses(self, block: Block, dice: np.random.Generator) -> Any:
        truth, shape = self._truth, (len(block.points), self._design.max_repeats, 2)
        share = np.array(
            [
                [truth.loss + truth.effects.get((p.tunnel.label, m), 0.0) for m in LOSSES]
                for p in block.points
            ]
        )[:, None, :]
        if not share.any():
            return np.zeros(shape, dtype=int)
        if truth.burst <= 1:
            return dice.binomial(truth.packets, np.broadcast_to(share, shape))
        begun = dice.poisson(np.broadcast_to(share * truth.packets / truth.burst, shape))
        more = dice.negative_binomial(np.maximum(begun, 1), 1 / truth.burst)
        return np.minimum(np.where(begun > 0, begun + more, 0), truth.packets)


_VALID: Final = json.dumps([{"name": "drawn", "ok": True, "message": "", "value": None}])
_INVALID: Final = json.dumps([{"name": "drawn", "ok": False, "message": "drawn", "value": None}])


def _counts(sent: int, arrived: int, returned: int) -> str:
    return (
        f'{{"send": {{"flows": [{{"flow": 0, "sent": {sent}, "returned": {returned}}}]}}, '
        f'"reflect": {{"flows": [{{"flow": 0, "received": {arrived}, "answered": {arrived}}}]}}}}'
    )


_places: dict[str, dict[str, Any]] = {}


def _place(point: Point) -> dict[str, Any]:
    """Return what stands in every row of a point."""
    if point.point_id not in _places or len(_places) > 20_000:  # noqa: PLR2004 - of one design
        columns = point.workload.columns
        _places[point.point_id] = {
            "point_id": point.point_id,
            "pair_id": pair_id(point),
            **columns_of(point),
            "param_payload_bytes": columns["payload_bytes"],
        }
    return _places[point.point_id]


def _frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    drawn = {name: METRIC_SCHEMA[name] for name in (*DRAWN, *LOSSES)}
    given = {**SCHEMA, "param_payload_bytes": pl.Int64, **drawn}
    same = {
        "study": "synthetic",
        "run_id": "tm00000",
        "path": "total",
        "duration_s": _TRIAL_S,
        "environment": "synthetic",
        "stratum": "namespaces",
    }
    columns: dict[str, Any] = {
        name: [row.get(name) for row in rows] for name in given if name not in {*same, "samples"}
    }
    frame = pl.DataFrame(columns, schema={name: given[name] for name in columns}, strict=False)
    empty = pl.lit([], dtype=pl.List(pl.String)).alias("samples")
    return frame.with_columns(*(pl.lit(v).alias(n) for n, v in same.items()), empty).select(*given)


def _manifest(design: Design, seed: int, environment: str) -> Manifest:
    study, _ = planned(design)
    return Manifest(
        format=FORMAT,
        study=study.name,
        title=study.title,
        description=study.description,
        study_text=study.text,
        study_source=study.source,
        study_sha256=hashlib.sha256(study.text.encode()).hexdigest(),
        run_id="tm00000",
        seed=seed,
        confidence=study.precision.confidence,
        precision_metric=study.precision.metric,
        started_at=START.isoformat(),
        outcome="complete",
        environment={"kernel": environment},
    )


def _record(block: Block) -> BlockRecord:
    where = (block.tunnel.label, block.link.label, block.device.label)
    return BlockRecord(block.block_id, *where, "drawn, native CPU", (), (), (), (), {})


def main() -> None:
    """Write a large result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--evidence-bytes", type=int, default=6_700, help="details of a trial")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    truth = Truth(
        {("a", "goodput_bit_s"): -0.05, ("a", "rtt_p50_ns"): 0.03}, bring_ups=0.01, loss=0.01
    )
    made = simulate(large(options.points, options.repeats), truth, options.seed)
    write(made, options.directory, evidence_bytes=options.evidence_bytes)
    print(f"{made.trials().height} trials of {options.points} points in {options.directory}")


if __name__ == "__main__":
    main()
