"""A child process that can be waited for whatever broke off the wait before."""

import contextlib
import math
import os
import select
import subprocess
import time
from typing import Final

_LOOK_S: Final = 0.1
"""A signal that comes right before the kernel begins to wait is handled only behind the wait."""


class Child(subprocess.Popen[bytes]):
    """``subprocess.Popen``, which learns of the child's end without a lock.

    That of ``Popen`` stays taken where the handler of a signal raises right behind taking it, as
    ``run.interrupt`` does; whoever waits for the child after that, such as what ends it in the
    cleaning up, would wait for ever.
    """

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        if self.returncode is None and (found := self._found()) is not None:
            # Only now may the kernel forget it: a status that was read is never lost.
            self.returncode = found
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most so many seconds; ``subprocess.TimeoutExpired`` behind them."""
        limit_s = math.inf if timeout is None else timeout
        until = time.monotonic() + limit_s
        while (status := self.poll()) is None:
            if (left_s := until - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(self.args, limit_s)
            self._await(min(left_s, _LOOK_S))
        return status

    def _found(self) -> int | None:
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Another thread has been here, or the status went elsewhere: as with Popen, 0 then.
            return self.returncode or 0
        if found is None:
            return None
        ended = found.si_code == os.CLD_EXITED
        return found.si_status if ended else -found.si_status

    def _await(self, limit_s: float) -> None:
        """Return when it has ended, or the time is over."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(limit_s * 1000)
            finally:
                os.close(descriptor)
