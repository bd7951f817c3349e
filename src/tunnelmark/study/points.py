"""Study to points: what a figure of it can stand for, and the blocks that share a tunnel."""

from typing import Final

from tunnelmark.model.baseline import USUAL, label_of
from tunnelmark.model.trial import BASELINE, Block, DriverSpec, Point, named
from tunnelmark.study.study import Study

_NONE: Final = DriverSpec(BASELINE, BASELINE, {})


def blocks(study: Study) -> tuple[Block, ...]:
    """Return the blocks: one for each tunnel, link and device, the baseline in each of them."""
    tunnels = study.tunnels or (_NONE,)
    return tuple(
        _block(study, tunnel, link, device)
        for link in study.links
        for device in study.devices
        for tunnel in tunnels
    )


def pair_id(point: Point) -> str:
    """Return what a tunnel's point and its baseline have in common."""
    return point.pair_id


def _block(study: Study, tunnel: DriverSpec, link: DriverSpec, device: DriverSpec) -> Block:
    chosen = (tunnel,) if tunnel.kind == BASELINE else (tunnel, _none_beside(tunnel))
    points = tuple(
        Point(named(one, link, device, workload), one, link, device, workload)
        for workload in study.workloads
        for one in chosen
    )
    return Block(f"b{named(tunnel, link, device)}", tunnel, link, device, points)


def _none_beside(tunnel: DriverSpec) -> DriverSpec:
    """Return the baseline of a tunnel: as many bare paths with the IP version that is inside."""
    params: dict[str, object] = {
        name: value
        for name, usual in USUAL.items()
        if (value := tunnel.columns.get(name, usual)) != usual
    }
    if not params:
        return _NONE
    return DriverSpec(BASELINE, label_of(params), params, params)
