"""A machine runs before ordinary work, its devices before its CPUs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunnelmark.hosts.vm_machine import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    with subprocess.Popen(["python3", "-c", _TWO_THREADS], stdout=subprocess.PIPE) as qemu:
        assert qemu.stdout is not None
        qemu.stdout.readline()
        facts = cast("Any", SimpleNamespace(name="of a test"))
        yield Machine(cast("Any", qemu), cast("Any", None), Path("console"), facts)
        qemu.kill()


def test_devices_go_before_cpus_and_all_threads_are_covered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, tuple[int, int]] = {}

    def note(thread: int, policy: int, parameter: os.sched_param) -> None:
        seen[thread] = (policy, parameter.sched_priority)

    monkeypatch.setattr(os, "sched_setscheduler", note)
    assert machine.go_first()
    pid = machine.process.pid
    assert seen.pop(pid) == (os.SCHED_RR, 2)
    assert list(seen.values()) == [(os.SCHED_RR, 1)]


def test_where_it_is_not_allowed_the_machine_runs_as_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not machine.go_first()
    assert os.sched_getscheduler(machine.process.pid) == os.sched_getscheduler(0)


_TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""
