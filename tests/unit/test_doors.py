"""Whatever comes through a door of the Python half is taken, or refused by an error of ours.

Each door is handed its seeds (what it must take, and what it stumbled over once) and changes of
them; ``make fuzz`` looks for more by coverage. Memory stays bounded by what was handed over.
"""

import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))
from doors import SEEDS, Door, doors, seeds

DOORS = doors()
_MOST_BYTES = 32 << 20
"""Of memory, for files of a few KiB."""
_EXAMPLES = {"result-block": 25, "result-manifest": 25, "result-trials": 15}
"""Fewer than of others where a whole result directory is read each time."""
_VALUES = (
    *(b"-1", b"1e400", b"null", b"[]", b"{}", b'""', b"\xff\xff\xff\xff"),
    *(b"9" * 5000, b"[" * 2000, rb'"\ud800"'),
)


def changed(name: str) -> st.SearchStrategy[bytes]:
    """Return seeds with a piece cut out, doubled, or another in its place."""
    pool = [path.read_bytes() for path in seeds(name)]

    def change(seed: bytes, at: int, length: int, new: bytes | None) -> bytes:
        at %= len(seed) + 1
        piece = seed[at : at + length]
        return seed[:at] + (piece * 2 if new is None else new) + seed[at + length :]

    news = st.one_of(st.none(), st.sampled_from(_VALUES), st.binary(max_size=16))
    lengths = st.one_of(st.integers(0, 16), st.integers(0, 4096))
    return st.one_of(
        st.builds(change, st.sampled_from(pool), st.integers(0, 1 << 20), lengths, news),
        st.binary(max_size=200),
    )


@pytest.mark.parametrize("name", sorted(DOORS))
def test_seeds_are_taken_or_refused_in_bounded_memory(name: str) -> None:
    found = seeds(name)
    DOORS[name].knock(found[0].read_bytes())  # what is imported and made once
    for path in found:
        tracemalloc.start()
        try:
            DOORS[name].knock(path.read_bytes())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < _MOST_BYTES


@pytest.mark.parametrize("name", sorted(DOORS))
def test_changed_seeds_are_taken_or_refused(name: str) -> None:
    @settings(
        max_examples=_EXAMPLES.get(name, 60), suppress_health_check=list(HealthCheck), database=None
    )
    @given(data=changed(name))
    def knock(data: bytes) -> None:
        DOORS[name].knock(data)

    knock()


def test_a_fault_behind_a_door_is_seen() -> None:
    def stumbles(data: bytes) -> object:
        return data[0]

    with pytest.raises(IndexError):
        Door(stumbles, ValueError).knock(b"")


def test_every_door_has_seeds_and_every_seed_a_door() -> None:
    assert {path.name.removeprefix("door-") for path in SEEDS.glob("door-*")} == set(DOORS)
