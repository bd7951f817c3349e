"""Built-in studies: what their descriptions promise."""

from tunnelmark.study import load_study
from tunnelmark.study.points import blocks
from tunnelmark.tunnels.registry import tunnel_kinds


def test_all_tunnels_has_every_kind() -> None:
    study = load_study("all-tunnels")
    # A kind that is a link of its own needs another link.
    kinds = {kind for kind, driver in tunnel_kinds().items() if not driver.is_link}
    assert kinds - {"none"} <= {spec.kind for spec in study.tunnels}


def test_all_tunnels_is_short_enough_for_25_minutes() -> None:
    study = load_study("all-tunnels")
    for block in blocks(study):
        assert len(block.points) == 4
    trials = 4 * len(blocks(study)) * study.precision.min_repeats
    packets = {int(str(spec.columns["packets"])) for spec in study.workloads}
    gaps_ns = {int(str(spec.columns["gap_ns"])) for spec in study.workloads}
    assert trials * max(packets) * max(gaps_ns) / 1e9 < 450
