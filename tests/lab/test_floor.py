"""The instrument's floor does not depend on the link that stands before it."""

from pathlib import Path

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.floor import Floor, measure_floor
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.none import NoneTunnel

pytestmark = [pytest.mark.lab, pytest.mark.timing]

MS = 1_000_000


def floor(ledger: Ledger, engine: str, logs: Path, delay_ns: int) -> Floor:
    way = Direction(10_000_000, delay_ns, Queue("bytes", 1 << 20))
    with Lab(ledger, Topology(), LinkSpec(way, way, seed=1), engine=engine, logs=logs) as lab:
        up = NoneTunnel(NoneTunnel.params_type()).up(lab.site)
        found = measure_floor(up, lab, seed=1, receive_time="kernel")
    assert found is not None
    return found


def test_the_floor_is_the_labs_and_not_the_links(
    ledger: Ledger, engine: str, tmp_path: Path
) -> None:
    near = floor(ledger, engine, tmp_path / "near", 0)
    far = floor(ledger, engine, tmp_path / "far", 30 * MS)
    for one in (near, far):
        assert one.packets == 3000
        assert one.rtt_p50_ns is not None
        assert one.rtt_p99_ns is not None
        assert one.rtt_p999_ns is not None
        assert 0 < one.rtt_p50_ns <= one.rtt_p99_ns <= one.rtt_p999_ns
    # 60 ms of delay and the serializations are taken out; what stays is no link delay.
    assert near.rtt_p50_ns is not None
    assert far.rtt_p50_ns is not None
    assert far.rtt_p50_ns < 5 * MS
    assert abs(far.rtt_p50_ns - near.rtt_p50_ns) < 2 * MS
