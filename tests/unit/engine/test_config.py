"""Configurations for the engine: session numbers that no header can confuse."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.engine import config


@given(st.integers(), st.integers(min_value=0, max_value=600))
def test_no_two_sessions_share_a_number_or_its_lower_half(seed: int, count: int) -> None:
    made = config.sessions(random.Random(seed), count)  # noqa: S311 - no secret
    assert len({session.session & 0xFFFF for session in made}) == count
    assert all(0 <= session.session < 1 << 32 for session in made)
    assert len({session.key for session in made}) == count
    assert [session.flow for session in made] == list(range(count))


def test_the_same_seed_gives_the_same_sessions() -> None:
    first, second = (config.sessions(random.Random(7), 20) for _ in range(2))  # noqa: S311
    assert first == second
