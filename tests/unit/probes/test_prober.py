"""How far apart the probes of the next batch are."""

import numpy as np
import pytest

from tunnelmark.probes.prober import PROBE_SPACING_NS, wider

MS = 1_000_000


@pytest.mark.parametrize(
    ("rtt_ms", "expected_ms"),
    [
        ([41] * 50, 6),  # the delay of the link does not count
        ([41 + n % 3 for n in range(50)], 6),
        ([41 + n % 5 for n in range(50)], 12),  # as uneven as half the spacing
        ([41 + n for n in range(50)], 85),  # much more uneven
        ([41 + 10 * n for n in range(50)], 120),  # hopeless: not for ever
        ([41] * 9, 12),  # hardly anything came back
        ([], 12),
    ],
)
def test_the_spacing_follows_what_packets_suffer(rtt_ms: list[int], expected_ms: int) -> None:
    rtt_ns = np.array(rtt_ms, dtype=np.int64) * MS
    assert wider(PROBE_SPACING_NS, rtt_ns) == pytest.approx(expected_ms * MS, rel=0.06)


def test_it_never_gets_narrower() -> None:
    assert wider(500 * MS, np.arange(50) * 100 * MS) == 500 * MS
