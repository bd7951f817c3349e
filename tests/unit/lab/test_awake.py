"""Idle cores are asked to wait awake, where that can be asked for, and no longer than a run."""

import struct
from pathlib import Path

import pytest

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.awake import Awake
from tunnelmark.lab.placement import Placement


@pytest.fixture
def latency(tmp_path: Path) -> Path:
    """Return a file in the place of the device; each request is written from its beginning."""
    made = tmp_path / "cpu_dma_latency"
    made.write_bytes(b"")
    return made


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    made = tmp_path / "current_driver"
    made.write_text("haltpoll\n", encoding="ascii")
    return made


def test_a_latency_of_nothing_is_asked_for_and_held_until_the_end(
    latency: Path, driver: Path
) -> None:
    awake = Awake(latency, driver)
    assert awake.describe() == "wait awake"
    assert latency.read_bytes() == b""
    with awake:
        assert latency.read_bytes() == struct.pack("=i", 0)
        assert _held(latency) == 1
        with Awake(latency, driver):
            assert _held(latency) == 2
    assert _held(latency) == 0


@pytest.mark.parametrize("said", [None, "none\n", ""])
def test_without_a_driver_of_idle_states_nothing_is_asked_for(
    latency: Path, driver: Path, said: str | None
) -> None:
    driver.unlink()
    if said is not None:
        driver.write_text(said, encoding="ascii")
    with Awake(latency, driver) as awake:
        assert awake.problem() == "the kernel has no cpuidle driver"
        assert awake.describe() == "may sleep (the kernel has no cpuidle driver)"
    assert latency.read_bytes() == b""


def test_who_may_not_ask_runs_all_the_same(latency: Path, driver: Path) -> None:
    latency.unlink()
    with Awake(latency, driver) as awake:
        assert awake.problem() == f"{latency}: No such file or directory"
    assert not latency.exists()


def test_a_run_keeps_them_awake_from_its_placement_to_its_end(
    latency: Path, driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.lab.placement.Awake", lambda: Awake(latency, driver))
    with Ledger(tmp_path) as ledger:
        with Placement(ledger, engine="") as placement:
            assert _held(latency) == 1
            assert placement.describe()["idle cores"] == "wait awake"
        assert _held(latency) == 0


def _held(file: Path) -> int:
    """Return how often this process has a file open."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        try:
            found += one.readlink() == file
        except FileNotFoundError:
            continue
    return found
