"""Study to jobs: what is brought up together, and which trials run in it in which order."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tunnelmark.model.job import Aim, Job
from tunnelmark.model.registry import make
from tunnelmark.model.seeds import short_hash, stream
from tunnelmark.model.trial import BASELINE, Point, Trial
from tunnelmark.study.aims import aims
from tunnelmark.study.points import blocks, pair_id
from tunnelmark.study.study import Study
from tunnelmark.workloads.registry import workload_kinds


def jobs(study: Study) -> tuple[Job, ...]:
    """Return the jobs: one for each tunnel, link and device, the baseline in each of them."""
    sha256 = hashlib.sha256(study.text.encode()).hexdigest()
    expected_s = {spec.label: make(workload_kinds(), spec).expected_s for spec in study.workloads}
    return tuple(
        Job(
            study=study.name,
            scale=study.scale,
            study_sha256=sha256,
            seed=study.seed,
            block=block,
            precision=study.precision,
            aims=_aims(study, block.points),
            limits=study.limits,
            probes=study.probes,
            topology=study.topology,
            expected_s=expected_s,
            together=study.tunnels if study.place.together else (),
        )
        for block in blocks(study)
    )


def alike(jobs: Sequence[Job], computer: str) -> Job:
    """Return the job that shows how far a computer differs from the others of a study (A/A).

    The study's first point without a tunnel, by itself, with the fewest repeats.
    """
    first = jobs[0]
    point = next(point for point in first.block.points if point.tunnel.kind == BASELINE)
    block_id = f"{_ALIKE}{short_hash(computer)}"
    return replace(
        first,
        block=replace(first.block, block_id=block_id, tunnel=point.tunnel, points=(point,)),
        precision=first.precision.model_copy(update={"max_repeats": first.precision.min_repeats}),
        aims={point.point_id: first.aims[point.point_id]},
    )


def is_alike(job_id: str) -> bool:
    """Say whether a job is one of ``alike``."""
    return job_id.startswith(_ALIKE)


_ALIKE: Final = "a"
"""Start of the names of such jobs; that of a study's own blocks is ``b``."""


def pairs(points: Sequence[Point]) -> tuple[tuple[Point, ...], ...]:
    """Return points with the same link, device and workload together, in their order."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(pair_id(point), []).append(point)
    return tuple(tuple(pair) for pair in found.values())


def first_round(job: Job) -> tuple[Trial, ...]:
    """Return the least number of repeats of every point, shuffled within each repeat."""
    repeats = range(1, job.precision.min_repeats + 1)
    return tuple(t for r in repeats for t in repeat(job, job.block.points, r))


def repeat(job: Job, points: Sequence[Point], number: int) -> tuple[Trial, ...]:
    """Return one repeat of some points of a job, in an order that the study's seed decides.

    A tunnel's point and its baseline stand next to each other, either first: the drift of a shared
    machine falls on both, and their difference is free of it.
    """
    name = f"order/{job.job_id}/{number}"
    dice = random.Random(stream(job.seed, name))  # noqa: S311 - an order, no secret
    order = [list(pair) for pair in pairs(points)]
    dice.shuffle(order)
    for pair in order:
        dice.shuffle(pair)
    return tuple(_trial(job, point, number) for pair in order for point in pair)


def _aims(study: Study, points: Sequence[Point]) -> dict[str, tuple[Aim, ...]]:
    found: dict[str, tuple[Aim, ...]] = {}
    for pair in pairs(points):
        found |= dict.fromkeys((point.point_id for point in pair), aims(study, pair))
    return found


def _trial(job: Job, point: Point, number: int) -> Trial:
    trial_id = f"{job.job_id}-{point.point_id}-{number}"
    return Trial(
        trial_id,
        job.job_id,
        point,
        number,
        stream(job.seed, f"trial/{trial_id}"),
        job.precision.bring_up_of(number),
    )
