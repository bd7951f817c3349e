"""What runs inside a Dask worker: one job into a part, which is sent back."""

import importlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tunnelmark.execute.part import (
    ERROR,
    RESULT,
    TASK,
    parse_task,
    run_part,
    versions,
)
from tunnelmark.execute.parts import pack
from tunnelmark.model.errors import LabError
from tunnelmark.run.interrupt import Interrupts

LAB: Final = "lab"
"""Name of the resource of a worker that may have a lab: one at a time."""
_LOOK_S: Final = 1.0
_ENDING_S: Final = 120.0
"""What a lab has for removing what it made."""
_EXECUTING: Final = frozenset({"executing", "long-running"})
_beside_others: Final[set[str]] = set()
"""Runs for which this worker has been set beside others."""


@dataclass(frozen=True)
class Facts:
    """What a worker says of itself."""

    computer: str
    tunnelmark: str
    engine: str
    is_root: bool


@dataclass(frozen=True)
class Sent:
    """What a worker sends back."""

    worker: str
    part: bytes


def facts() -> Facts:
    """Return what decides whether this process can be a worker of a run."""
    return Facts(socket.gethostname(), *versions(), is_root=os.geteuid() == 0)


def carry_out(text: str) -> Sent:
    """Run the job of a task; called by Dask in a worker.

    Raises ``TunnelmarkError`` if it cannot be run here.
    """
    worker = _distributed().get_worker()
    _stop_profiler(worker)
    key = worker.get_current_task()
    name = _name(worker)

    def gone() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state not in _EXECUTING

    task = parse_task(text)
    with tempfile.TemporaryDirectory(dir=worker.local_directory) as folder:
        if task.simulated:
            run_part(task, Path(folder, RESULT), worker=name, interrupts=_Wanted(gone))
        else:
            if worker.state.total_resources.get(LAB) != 1:
                raise LabError(f"worker {name} has no resource {LAB}=1, so it takes no labs")
            first = task.head.run_id not in _beside_others
            text = task.model_copy(update={"alike": first}).model_dump_json()
            _in_a_process(text, Path(folder), name, gone)
            _beside_others.add(task.head.run_id)
        return Sent(name, pack(Path(folder, RESULT)))


def _stop_profiler(worker: Any) -> None:
    """Stop Dask's own profiler in a worker: with Python 3.11 it hangs a process with threads.

    It looks at all frames each 10 ms, and a garbage collection while it does waits for ever for a
    thread that ends (python/cpython#106883, not corrected in 3.11).
    """
    for name in ("profile", "profile-cycle"):
        if (callback := worker.periodic_callbacks.get(name)) is not None:
            worker.loop.add_callback(callback.stop)


def _in_a_process(text: str, folder: Path, name: str, gone: Callable[[], bool]) -> None:
    """Run a lab's job in a process of its own, which ends in order when nobody wants it any more.

    It removes what it made also when this worker dies.
    """
    (folder / TASK).write_text(text, encoding="utf-8")
    program = [sys.executable, "-m", "tunnelmark.execute.part", str(folder), name]
    with subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *program]) as process:
        while True:
            try:
                process.wait(_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if gone():
                    _end(process)
                    break
    if process.returncode != 0:
        error = folder / ERROR
        why = error.read_text(encoding="utf-8") if error.is_file() else "it left no message"
        raise LabError(f"the job ended with status {process.returncode} on {name}: {why}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()


class _Wanted(Interrupts):
    """Ends a job that the run does not want any more."""

    def __init__(self, gone: Callable[[], bool]) -> None:
        super().__init__()
        self._gone = gone

    def requested(self) -> bool:
        return self._gone()


def _name(worker: Any) -> str:
    """Return the computer's name, and the worker's where it was given one."""
    computer = socket.gethostname()
    return computer if worker.name == worker.address else f"{computer}/{worker.name}"


def _distributed() -> Any:
    return importlib.import_module("distributed")
