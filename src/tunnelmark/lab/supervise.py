"""A command that runs again in namespaces of its own: its signals, its end, and nothing without it.

``unshare --fork`` obeys no SIGINT and no SIGTERM for as long as what it started runs, and whoever
stops a run knows this process alone. So it passes them on.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run ``unshare --fork --kill-child …`` until it ends and return its exit status.

    SIGINT, SIGTERM and SIGHUP reach what it started, once each; what does not obey them yet is
    killed. It stops and continues with this process, and is killed when this process is.
    """
    return _Supervisor(argv, environment).wait()


class _Supervisor:
    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        # A process group of its own: what a terminal tells a whole group comes once, from here.
        self._child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv], env=dict(environment), process_group=0
        )
        self._killed_for: int | None = None
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup(1)
                signal.signal(number, self._pass_on)
        signal.signal(signal.SIGTSTP, self._pause)

    def wait(self) -> int:
        status = self._child.wait()
        if self._killed_for is not None:
            return 128 + self._killed_for
        return status if status >= 0 else 128 - status

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        inside = _started_by(self._child.pid)
        with contextlib.suppress(ProcessLookupError):
            if inside is not None and _catches(inside, number):
                os.kill(inside, number)
            else:
                # The first process of a PID namespace ignores what it does not catch.
                self._killed_for = number
                self._child.kill()

    def _pause(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGCONT)


def _started_by(parent: int) -> int | None:
    """Return the process that another one started; proc(5): its parent is field 4."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if fields[1] == str(parent):
                return int(path.parent.name)
    return None


def _catches(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "SigCgt":
                return bool(int(value, 16) >> (number - 1) & 1)
    return False
