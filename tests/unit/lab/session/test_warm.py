"""How long the warm-up waits for replies that may be lost."""

import pytest

from tunnelmark.lab.session.floor import RoundTrip
from tunnelmark.lab.session.warm import waiting_ns

MS = 10**6


@pytest.mark.parametrize(
    ("fixed", "wait_ns"),
    [
        (None, 1000 * MS),
        (RoundTrip(0, 0), 200 * MS),
        (RoundTrip(600 * MS, 1), 800 * MS),
        (RoundTrip(5000 * MS, 1), 1000 * MS),
    ],
)
def test_a_link_of_known_delay_is_not_waited_for_longer_than_it_needs(
    fixed: RoundTrip | None, wait_ns: int
) -> None:
    assert waiting_ns(fixed) == wait_ns


@pytest.mark.parametrize(("gap_ns", "wait_ns"), [(3 * MS, 220 * MS), (2 * MS, 1000 * MS)])
def test_where_packets_wait_for_one_another_it_is_the_usual_time(gap_ns: int, wait_ns: int) -> None:
    assert waiting_ns(RoundTrip(20 * MS, 3 * MS), gap_ns=gap_ns) == wait_ns
