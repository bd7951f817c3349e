"""A command in namespaces of its own gets its supervisor's signals, and never outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import command_lines
from tunnelmark.lab.rootless import cannot_run_rootless

pytestmark = pytest.mark.skipif(
    cannot_run_rootless() is not None, reason="user namespaces are not allowed here"
)

_UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
# The tests themselves may run under nohup(1) or as a shell's background job, which ignore signals
# that the supervisor then ignores too.
_SUPERVISOR = """
import json, os, signal, sys
from tunnelmark.lab.supervise import supervise
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(supervise(json.loads(sys.argv[1]), os.environ))
"""
_OBEYS = """
import signal, sys, time
reported = []
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), lambda number, _: reported.append(number))
print("ready", flush=True)
while not reported:
    time.sleep(0.01)
time.sleep(0.2)
print(*reported, flush=True)
sys.exit(7)
"""


def _start(*inside: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", _SUPERVISOR, json.dumps([*_UNSHARE, *inside])]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def _has(marker: str) -> bool:
    return any(words.endswith(marker.encode() + b"\0") for words in command_lines().values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("tell", [os.kill, os.killpg])
def test_a_signal_arrives_once_and_the_status_comes_back(
    tell: Callable[[int, int], None], number: int
) -> None:
    with _start(sys.executable, "-c", _OBEYS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        tell(process.pid, number)
        assert process.stdout.read().split() == [str(int(number))]
        assert process.wait(30) == 7


def test_what_does_not_obey_yet_is_ended() -> None:
    with _start("sh", "-c", "echo ready; exec sleep 3001.25", "marker") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert _eventually(lambda: not _has("3001.25"))


def test_it_ends_with_a_supervisor_that_is_killed() -> None:
    with _start("sh", "-c", "echo ready; exec sleep 3001.75") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
    assert _eventually(lambda: not _has("3001.75"))


def test_it_stops_and_goes_on_with_its_supervisor() -> None:
    count = (
        "import time, itertools\nfor n in itertools.count(): print(n, flush=True); time.sleep(.01)"
    )
    with _start(sys.executable, "-c", count) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTSTP)
        stat = Path(f"/proc/{process.pid}/stat")
        assert _eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        process.send_signal(signal.SIGCONT)
        before = int(process.stdout.readline())
        assert _eventually(lambda: int(process.stdout.readline()) > before + 20)  # type: ignore[union-attr]
        process.kill()
