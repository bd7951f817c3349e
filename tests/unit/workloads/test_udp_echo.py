"""When an echo has no figure of its latest packets."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.engine import config
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads import udp_echo
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.streams import Streamed
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

MS = 1_000_000


@pytest.mark.parametrize(
    ("params", "paths", "alone", "apart_ns"),
    [
        ({"packets": 299, "load": "spread"}, 1, True, 20 * MS),
        ({"packets": 300, "load": "spread"}, 1, True, None),  # has a 99th percentile
        (
            {"packets": 299, "load": "spread"},
            1,
            False,
            None,
        ),  # what else is sent may be near a late packet
        ({"packets": 299, "load": "spread"}, 4, True, 20 * MS),
        ({"packets": 74, "load": "each"}, 4, True, 5 * MS),  # the paths take turns within a gap
        ({"packets": 75, "load": "each"}, 4, True, None),  # of all paths there are 300
    ],
)
def test_what_may_be_late_follows_from_the_figures(
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, object],
    paths: int,
    alone: bool,
    apart_ns: int | None,
) -> None:
    asked: list[int | None] = []

    def run_streams(
        _context: object, _flows: Sequence[config.Flow], *, apart_ns: int | None, **_: object
    ) -> Streamed:
        asked.append(apart_ns)
        return Streamed((), apart_ns=apart_ns)

    monkeypatch.setattr(udp_echo, "run_streams", run_streams)
    host: Any = SimpleNamespace(work_dir=PurePosixPath("/none"))
    path = TrafficPath("0", "198.18.0.1", "198.18.0.2", "lo", "lo", 1500)
    context = TrialContext(
        client=host,
        server=host,
        paths=(path,) * paths,
        engine="",
        seed=1,
        samples_dir=None,
        sample_stem="echo",
        progress=lambda _: None,
        cancelled=lambda: False,
        alone=alone,
    )
    sent = UdpEchoParams.model_validate({"gap": "20 ms", "payload_bytes": 64, **params})
    outcome = UdpEcho(sent).run(context)
    assert asked == [apart_ns]
    assert outcome.apart_ns == apart_ns
