"""Keeps all cores busy: by programs of this one, or by those of others."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_SPIN: Final = "timeout 120 sh -c 'while :; do :; done' >/dev/null 2>&1 &"


@contextmanager
def busy(*, own: bool) -> Iterator[list[int]]:
    """Start a program for each core: children of this one, or of a shell that has ended.

    Gives their process ids, so that they can be ended early.
    """
    count = os.cpu_count() or 1
    spins = " ".join(f"{_SPIN} echo $!;" for _ in range(count))
    shell = subprocess.Popen(
        ["sh", "-c", f"{spins} {'read _' if own else ''}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    pids = [int(shell.stdout.readline()) for _ in range(count)]
    try:
        if not own:
            shell.wait()
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        shell.communicate("\n" if own else None)
