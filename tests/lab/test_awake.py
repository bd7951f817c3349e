"""The kernel does as it is asked: while a run measures, no core falls asleep."""

import time
from pathlib import Path

import pytest

from tunnelmark.lab.awake import Awake


@pytest.mark.timing
def test_no_core_falls_asleep_meanwhile_and_all_may_again_afterwards(awake: Awake) -> None:
    if (problem := awake.problem()) is not None:
        pytest.skip(problem)
    assert _sleeps_in_half_a_second() == 0
    awake.__exit__()
    try:
        assert _sleeps_in_half_a_second() > 0
    finally:
        awake.__enter__()
    assert _sleeps_in_half_a_second() == 0


def _sleeps_in_half_a_second() -> int:
    # A state is counted when a core leaves it: one that slept until now is woken up first.
    time.sleep(0.1)
    before = _sleeps()
    time.sleep(0.5)
    return _sleeps() - before


def _sleeps() -> int:
    """Return how often cores have entered a state that they must be woken up from."""
    return sum(
        int((state / "usage").read_text(encoding="ascii"))
        for core in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle")
        for state in core.glob("state[1-9]*")
    )
