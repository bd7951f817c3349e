"""Study to blocks: what is brought up together, and which trials run in it in which order."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelmark.model.trial import BASELINE, Block, DriverSpec, Point, Trial
from tunnelmark.study.seeds import short_hash, stream
from tunnelmark.study.study import Study

_NONE = DriverSpec(BASELINE, BASELINE, {})
_BASELINE_USUAL = {"count": 1, "inner": "ipv4"}


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


def baseline(block: Block) -> DriverSpec:
    """Return what the block's tunnel is compared with: nothing, over as many paths."""
    return next(point.tunnel for point in block.points if point.tunnel.kind == BASELINE)


def pairs(points: Sequence[Point]) -> tuple[tuple[Point, ...], ...]:
    """Return points with the same link, device and workload together, in their order."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(pair_id(point), []).append(point)
    return tuple(tuple(pair) for pair in found.values())


def first_round(study: Study, block: Block) -> Round:
    """Return the least number of repeats of every point, shuffled within each repeat."""
    repeats = range(1, study.precision.min_repeats + 1)
    return Round(tuple(t for r in repeats for t in repeat(study, block, block.points, r)))


def repeat(study: Study, block: Block, points: Sequence[Point], number: int) -> tuple[Trial, ...]:
    """Return one repeat of some points of a block, in an order that the study's seed decides.

    A tunnel's point and its baseline stand next to each other, either first: the drift of a shared
    machine falls on both, and their difference is free of it.
    """
    name = f"order/{block.block_id}/{number}"
    dice = random.Random(stream(study.seed, name))  # noqa: S311 - an order, no secret
    order = [list(pair) for pair in pairs(points)]
    dice.shuffle(order)
    for pair in order:
        dice.shuffle(pair)
    return tuple(_trial(study, block, point, number) for pair in order for point in pair)


def pair_id(point: Point) -> str:
    """Return what a tunnel's point and its baseline have in common."""
    return short_hash(_canonical(point.link, point.device, point.workload))


def _block(study: Study, tunnel: DriverSpec, link: DriverSpec, device: DriverSpec) -> Block:
    chosen = (tunnel,) if tunnel.kind == BASELINE else (tunnel, _none_beside(tunnel))
    points = tuple(
        Point(short_hash(_canonical(t, link, device, workload)), t, link, device, workload)
        for workload in study.workloads
        for t in chosen
    )
    return Block(f"b{short_hash(_canonical(tunnel, link, device))}", tunnel, link, device, points)


def _none_beside(tunnel: DriverSpec) -> DriverSpec:
    """Return the baseline of a tunnel: as many bare paths with the IP version that is inside."""
    params = {
        name: value
        for name, usual in _BASELINE_USUAL.items()
        if (value := tunnel.columns.get(name, usual)) != usual
    }
    if not params:
        return _NONE
    words = [BASELINE]
    if "count" in params:
        words.append(f"x{params['count']}")
    if params.get("inner") == "ipv6":
        words.append("IPv6")
    return DriverSpec(BASELINE, " ".join(words), params, params)


def _trial(study: Study, block: Block, point: Point, number: int) -> Trial:
    trial_id = f"{block.block_id}-{point.point_id}-{number}"
    return Trial(
        trial_id,
        block.block_id,
        point,
        number,
        stream(study.seed, f"trial/{trial_id}"),
        study.precision.bring_up_of(number),
    )


def _canonical(*specs: DriverSpec) -> str:
    parts: list[list[object]] = []
    for spec in specs:
        parts.append([spec.kind, spec.label, dict(spec.params)])
        # Only where there is some, so that points without it keep their names.
        parts += [[b.label, b.kind, dict(b.params), b.path] for b in spec.background]
    return json.dumps(parts, sort_keys=True)
