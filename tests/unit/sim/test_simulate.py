"""How a document reaches the simulator, and what ends it: with a program in its place."""

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from tunnelmark.engine.summary import LinkDirection
from tunnelmark.model.errors import LabError
from tunnelmark.sim import simulate as module
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


@pytest.fixture
def with_connections(tmp_path: Path) -> Callable[[int, int], str]:
    """Return a function that writes a simulator of so many connections of so many seconds."""

    def write(count: int, seconds: int) -> str:
        numbers = ("sent_bytes", "delivered_bytes", "retransmits", "rtt_ns", "window_bytes")
        second = dict.fromkeys(numbers, 125_000_000)
        connection = {"way": "forward", "timeouts": 0, "rest_ns": None}
        counted = dict.fromkeys(COUNTERS, 0) | {"lateness_ns": None}
        summary = {
            "event": "summary",
            "end_ns": 1,
            "a_to_b": counted,
            "b_to_a": counted,
            "paths": [],
            "tcp": [{**connection, "seconds": [second] * seconds}] * count,
        }
        path = tmp_path / "engine"
        path.write_text(f"#!/bin/sh\ncat <<'end'\n{json.dumps(summary)}\nend\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return write


def test_a_summary_has_every_second_of_an_hour(
    with_connections: Callable[[int, int], str],
) -> None:
    engine = with_connections(3, 3600)
    assert Path(engine).stat().st_size > 1 << 20
    found = simulate(engine, {}, lambda: False)
    assert [len(one.seconds) for one in found.tcp] == [3600] * 3


def test_a_summary_longer_than_any_can_be_is_refused_with_the_limit(
    with_connections: Callable[[int, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = with_connections(1, 10)
    monkeypatch.setattr(module, "LONGEST_SUMMARY", 1000)
    with pytest.raises(LabError, match=r"has \d{4} characters, at most 1000 are read"):
        simulate(engine, {}, lambda: False)
