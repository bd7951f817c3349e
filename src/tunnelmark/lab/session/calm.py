"""Nothing is measured while others keep the computer busy, as far as a run may wait for its end.

The lab's floor is measured on a calm computer, and so is what follows a trial that a busy one
spoiled, or of which it held the latest packets up. To look before each trial would cost a second of
each.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from tunnelmark.model.lateness import LATE_TAIL
from tunnelmark.model.validity import Validity
from tunnelmark.probes.busy import Busy

_LONGEST_S: Final = 120.0
"""Of one wait: hypervisors were seen to take a third of the time for as long as that."""
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 1.0
_CALM_LOOKS: Final = 2
"""In a row end a wait: in half a minute of stolen time one second of ten looked calm."""
_OF_THE_COMPUTER: Final = ("steal", "starvation", "lateness")
"""In the names of checks that fail on a busy computer; an overload of the trial's own does so too,
and costs one look."""


class Calm:
    """What a run knows of it: shared by its sessions, as they share the computer.

    All waits together take no longer than all trials so far, and one longest wait.
    """

    def __init__(
        self,
        look: Callable[[float], Busy],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the computer for calm; ``look`` looks for some seconds."""
        self._look, self._clock, self._sleep = look, clock, sleep
        self._in_doubt = False
        self._left_s = _LONGEST_S

    def note(self, validity: Validity, trial_s: float) -> None:
        """Take the verdict on a trial, and how long it took."""
        named = (c.name for c in validity.checks if not c.ok or c.name.startswith(LATE_TAIL))
        self._in_doubt = any(word in name for name in named for word in _OF_THE_COMPUTER)
        self._left_s += trial_s

    def doubt(self) -> None:
        """Look before what comes next, whatever the last trial was."""
        self._in_doubt = True

    def wait(
        self,
        limit: Busy,
        waiting: Callable[[str], AbstractContextManager[None]],
        cancelled: Callable[[], bool],
    ) -> None:
        """Wait, if that is in doubt, until others keep the computer no busier than a limit.

        Returns after two minutes at the latest: then the checks of the trial judge. ``waiting`` is
        entered with the reason, and only if the first look finds the computer busy. Raises what
        ``look`` raises.
        """
        if not self._in_doubt or limit.taken_ratio >= 1 or self._left_s < _LOOK_S:
            return
        self._in_doubt = False
        start = self._clock()
        end = start + min(_LONGEST_S, self._left_s)
        if not (seen := self._look(_LOOK_S)).within(limit):
            why = (
                f"other programs or the hypervisor keep this computer busy ({seen.beside(limit)}); "
                f"the run goes on in {end - self._clock():.0f} s at the latest"
            )
            with waiting(why):
                self._until_calm(limit, end, cancelled)
        self._left_s -= self._clock() - start

    def _until_calm(self, limit: Busy, end: float, cancelled: Callable[[], bool]) -> None:
        calm = 0
        while calm < _CALM_LOOKS and self._clock() < end and not cancelled():
            self._sleep(_PAUSE_S)
            calm = calm + 1 if self._look(_LOOK_S).within(limit) else 0
