"""How a document reaches the simulator, and what ends it: with a program in its place."""

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from tunnelmark.engine.summary import LinkDirection
from tunnelmark.model.errors import LabError
from tunnelmark.sim.simulate import simulate

SLOW = """\
import json, sys, time
time.sleep({wait_s})
document = json.load(sys.stdin)
counted = dict.fromkeys({counters}, 0) | {{"lateness_ns": None}}
links = {{"a_to_b": counted, "b_to_a": counted, "paths": []}}
ends = 1_000_000_000 + len(document["filler"])
print(json.dumps({{"event": "summary", "end_ns": ends, **links}}), flush=True)
"""
COUNTERS = [one.name for one in fields(LinkDirection)]


@pytest.fixture
def program(tmp_path: Path) -> Callable[[float], str]:
    def write(wait_s: float) -> str:
        path = tmp_path / "engine"
        path.write_text(
            f"#!{sys.executable}\n{SLOW.format(wait_s=wait_s, counters=COUNTERS)}", encoding="utf-8"
        )
        path.chmod(0o755)
        return str(path)

    return write


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_document_reaches_a_simulator_that_is_slow_to_read(
    program: Callable[[float], str], size: int
) -> None:
    looks = iter([False] * 100)
    # A pipe holds 64 KiB: the rest of it would be written after the first look, or never.
    found = simulate(program(0.5), {"filler": "a" * size}, lambda: next(looks, True))
    assert found.lasted_ns == size


def test_a_simulation_ends_early_when_asked(program: Callable[[float], str]) -> None:
    looks = iter([False, False])
    with pytest.raises(LabError, match="ended early"):
        simulate(program(60), {"filler": ""}, lambda: next(looks, True))
