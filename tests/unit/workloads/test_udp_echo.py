"""When an echo has no figure of its latest packets."""

from collections.abc import Sequence

import pytest

from made_contexts import context
from tunnelmark.engine import config
from tunnelmark.workloads import udp_echo
from tunnelmark.workloads.streams import Streamed
from tunnelmark.workloads.udp_echo import UdpEcho, UdpEchoParams

MS = 1_000_000


@pytest.mark.parametrize(
    ("params", "paths", "alone", "apart_ns"),
    [
        ({"packets": 299, "load": "spread"}, 1, True, 20 * MS),
        ({"packets": 300, "load": "spread"}, 1, True, None),  # has a 99th percentile
        # What else is sent may be near a late packet.
        ({"packets": 299, "load": "spread"}, 1, False, None),
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
    sent = UdpEchoParams.model_validate({"gap": "20 ms", "payload_bytes": 64, **params})
    outcome = UdpEcho(sent).run(context(paths, alone=alone))
    assert asked == [apart_ns]
    assert outcome.apart_ns == apart_ns
