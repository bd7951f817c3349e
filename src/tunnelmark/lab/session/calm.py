"""Nothing is measured while others keep the computer busy, as far as a run may wait for its end.

The lab's floor is measured on a calm computer, and so is what follows a trial that a busy one
spoiled. To look before each trial would cost a second of each.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from tunnelmark.model.quantity import percent
from tunnelmark.model.validity import Validity
from tunnelmark.probes.taken import taken_ratio

_LONGEST_S: Final = 120.0
"""Of one wait: hypervisors were seen to take a third of the time for as long as that."""
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 1.0
_OF_THE_COMPUTER: Final = ("steal", "starvation", "lateness")
"""In the names of checks that fail on a busy computer; an overload of the trial's own does so too,
and costs one look."""


class Calm:
    """What a run knows of it: shared by its sessions, as they share the computer.

    All waits together take no longer than all trials so far, and one longest wait.
    """

    def __init__(
        self,
        *,
        look: Callable[[float], float] = taken_ratio,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the computer for calm."""
        self._look, self._clock, self._sleep = look, clock, sleep
        self._in_doubt = False
        self._left_s = _LONGEST_S

    def note(self, validity: Validity, trial_s: float) -> None:
        """Take the verdict on a trial, and how long it took."""
        failed = (check.name for check in validity.checks if not check.ok)
        self._in_doubt = any(word in name for name in failed for word in _OF_THE_COMPUTER)
        self._left_s += trial_s

    def doubt(self) -> None:
        """Look before what comes next, whatever the last trial was."""
        self._in_doubt = True

    def wait(
        self,
        most_ratio: float,
        waiting: Callable[[str], AbstractContextManager[None]],
        cancelled: Callable[[], bool],
    ) -> None:
        """Wait, if that is in doubt, until others take no more than a share of the time.

        Returns after two minutes at the latest: then the checks of the trial judge. ``waiting`` is
        entered with the reason, and only if the first look finds the computer busy.
        """
        if not self._in_doubt or most_ratio >= 1 or self._left_s < _LOOK_S:
            return
        self._in_doubt = False
        start = self._clock()
        end = start + min(_LONGEST_S, self._left_s)
        if (taken := self._look(_LOOK_S)) > most_ratio:
            why = (
                f"the hypervisor and other programs take {percent(taken)} of the time; the run "
                f"goes on below {percent(most_ratio)}, or in {end - self._clock():.0f} s"
            )
            with waiting(why):
                while self._clock() < end and not cancelled():
                    self._sleep(_PAUSE_S)
                    if self._look(_LOOK_S) <= most_ratio:
                        break
        self._left_s -= self._clock() - start
