"""How busy others keep a computer, by a CPU probe of the test's own."""

import itertools
import os
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.probes import busy
from tunnelmark.probes.cpu import TICKS_PER_S, CoreTicks, CpuUsage, GroupUsage


def taken(
    monkeypatch: pytest.MonkeyPatch,
    cores: list[int],
    *,
    others_s: float | None,
    waited_s: float = 0.0,
) -> float:
    """Look at cores; core 2 alone had time stolen, half of it, and core 1 is off."""

    class Probe:
        def __init__(self, *_: object) -> None:
            """Nothing is read."""

        def start(self, _now_ns: int) -> None:
            """Nothing is read."""

        def stop(self, _now_ns: int) -> CpuUsage:
            ticks = round(0.02 * TICKS_PER_S / len(cores) / 2)
            found = (CoreTicks(0, 0, 0, 0, 1, 0.02), CoreTicks(0, 0, 0, ticks, 1, 0.02, 2))
            own: Any = {busy._STARTED: GroupUsage(0.02, 0, 0)}
            return CpuUsage(0.02, own, found, others_s=others_s)

    waits = iter([1.0, 1.0 + waited_s])
    # Of its own: on a busy computer a look may last longer than it asks for.
    clock = itertools.count(0.0, 0.02)
    monkeypatch.setattr(busy, "time", SimpleNamespace(monotonic=clock.__next__, monotonic_ns=int))
    monkeypatch.setattr(busy, "CpuProbe", Probe)
    monkeypatch.setattr(busy, "_waited_s", lambda: next(waits))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    return busy._taken_ratio(0.02, cores)


def test_what_is_stolen_of_a_core_is_found_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken(monkeypatch, [2], others_s=0.0) == pytest.approx(0.5)
    assert taken(monkeypatch, [0], others_s=0.0) == 0.0
    assert taken(monkeypatch, [1], others_s=0.0) == 0.0


def test_of_a_wait_the_share_of_others_counts_and_where_they_are_not_seen_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert taken(monkeypatch, [0], others_s=0.0, waited_s=0.01) == 0.0
    assert taken(monkeypatch, [0], others_s=0.02, waited_s=0.01) == pytest.approx(0.25)
    assert taken(monkeypatch, [0], others_s=None, waited_s=0.01) == pytest.approx(0.5)
