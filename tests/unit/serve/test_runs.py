"""The run that a server starts: one at a time, and an end that comes."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tunnelmark.serve import runs
from tunnelmark.serve.runs import BusyError, Runner

# Stands for ``tunnelmark run --json``: what it started keeps its pipes open after its own end.
LINGERS = """
import json, subprocess, sys
print(json.dumps({"event": "run_started", "directory": "results/made", "trials_min": 4,
                  "expected_s": 60, "skipped": []}), flush=True)
if "quickstart" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(SECONDS); print('{}')"])
"""


@pytest.fixture
def lingering(tmp_path: Path) -> Iterator[Callable[[float], Runner]]:
    made: list[Runner] = []

    def make(seconds: float) -> Runner:
        command = (sys.executable, "-c", LINGERS.replace("SECONDS", str(seconds)))
        made.append(Runner(tmp_path, command))
        return made[-1]

    yield make
    for runner in made:
        in_time(runner.close)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def process_of(runner: Runner) -> Popen[bytes]:
    assert runner._process is not None
    return runner._process


def in_time(work: Callable[[], object], limit_s: float = 10.0) -> None:
    """Do it on a thread: what hangs must not hang the tests."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert not thread.is_alive(), "it hangs"


def test_a_start_right_after_an_end_does_not_hang(
    lingering: Callable[[float], Runner],
) -> None:
    runner = lingering(2.0)
    runner.start("quickstart", "full")
    first = process_of(runner)
    until(lambda: first.poll() is not None)
    refused: list[BusyError] = []

    def start() -> None:
        try:
            runner.start("office", "full")
        except BusyError as error:
            refused.append(error)

    in_time(start)
    assert [str(error) for error in refused] == [
        "the last run has just ended and its last lines are being read: try again in a few seconds"
    ]
    in_time(runner.stop)
    in_time(runner.progress)

    def ended() -> bool:
        progress = runner.progress()
        return progress is not None and progress.ended

    until(ended)
    runner.start("office", "full")
    until(ended)
    progress = runner.progress()
    assert progress is not None
    assert (progress.study, progress.outcome) == ("office", "complete")


def test_what_a_run_left_behind_does_not_keep_it_from_ending(
    lingering: Callable[[float], Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_LAST_LINES_S", 0.2, raising=False)
    runner = lingering(15.0)
    runner.start("quickstart", "full")
    first = process_of(runner)
    until(lambda: first.poll() is not None)
    in_time(runner.close)
    progress = runner.progress()
    assert progress is not None
    assert (progress.result, progress.outcome, progress.phase) == ("made", "complete", "ended")


def test_a_command_that_cannot_be_started_blocks_no_other(tmp_path: Path) -> None:
    runner = Runner(tmp_path, (str(tmp_path / "gone"),))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            runner.start("quickstart", "full")
    assert runner.progress() is None
    runner.close()
