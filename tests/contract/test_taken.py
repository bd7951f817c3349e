"""What others take is known apart from what this program has started itself."""

import os

import pytest

from busy import busy
from tunnelmark.probes.taken import taken_ratio

pytestmark = pytest.mark.timing


def test_programs_of_others_take_time_and_those_of_this_one_do_not() -> None:
    affinity = os.sched_getaffinity(0)
    with busy(own=False):
        by_others = taken_ratio(1.0)
    with busy(own=True):
        by_own = taken_ratio(1.0)
    assert 0.3 < by_others <= 1
    assert by_own < by_others / 2
    assert os.sched_getaffinity(0) == affinity
