"""Study to blocks: what is brought up together, and which trials run in it in which order."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelmark.model.trial import BASELINE, Block, DriverSpec, Point, Trial
from tunnelmark.study.seeds import short_hash, stream
from tunnelmark.study.study import Study

_NONE = DriverSpec(BASELINE, BASELINE, {})


@dataclass(frozen=True)
class Round:
    """Trials that are run in this order before the stop rule looks again."""

    trials: tuple[Trial, ...]


def blocks(study: Study) -> tuple[Block, ...]:
    """Return the blocks: one for each tunnel, link and device, the baseline in each of them."""
    tunnels = study.tunnels or (_NONE,)
    return tuple(
        _block(study, tunnel, link, device)
        for link in study.links
        for device in study.devices
        for tunnel in tunnels
    )


def first_round(study: Study, block: Block) -> Round:
    """Return the least number of repeats of every point, shuffled within each repeat.

    A repeat of the tunnel's point and of the baseline's stand close together, so that the drift of
    a shared machine falls on both.
    """
    repeats = range(1, study.precision.min_repeats + 1)
    return Round(tuple(t for r in repeats for t in repeat(study, block, block.points, r)))


def repeat(study: Study, block: Block, points: Sequence[Point], number: int) -> tuple[Trial, ...]:
    """Return one repeat of some points of a block, in an order that the study's seed decides."""
    order = list(points)
    name = f"order/{block.block_id}/{number}"
    random.Random(stream(study.seed, name)).shuffle(order)  # noqa: S311 - an order, no secret
    return tuple(_trial(study, block, point, number) for point in order)


def pair_id(point: Point) -> str:
    """Return what a tunnel's point and its baseline have in common."""
    return short_hash(_canonical(point.link, point.device, point.workload))


def _block(study: Study, tunnel: DriverSpec, link: DriverSpec, device: DriverSpec) -> Block:
    chosen = (tunnel,) if tunnel.kind == BASELINE else (tunnel, _NONE)
    points = tuple(
        Point(short_hash(_canonical(t, link, device, workload)), t, link, device, workload)
        for workload in study.workloads
        for t in chosen
    )
    return Block(f"b{short_hash(_canonical(tunnel, link, device))}", tunnel, link, device, points)


def _trial(study: Study, block: Block, point: Point, number: int) -> Trial:
    trial_id = f"{block.block_id}-{point.point_id}-{number}"
    return Trial(trial_id, block.block_id, point, number, stream(study.seed, f"trial/{trial_id}"))


def _canonical(*specs: DriverSpec) -> str:
    return json.dumps([[s.kind, s.label, dict(s.params)] for s in specs], sort_keys=True)
