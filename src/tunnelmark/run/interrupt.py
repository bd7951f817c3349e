"""A request to end (SIGINT, SIGTERM, SIGHUP) is obeyed in order, and soon."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self


class Interrupted(BaseException):
    """The run is to end; like ``KeyboardInterrupt`` no driver may take it for a failure of its."""


class Interrupts:
    """Use as a context manager around a run, in the main thread; elsewhere it listens to nothing.

    The first signal sets ``requested``: a trial ends early and is recorded as interrupted. Where a
    wait could be long and there is nothing to record (``abrupt``) it raises ``Interrupted`` at
    once; a second signal does so everywhere but in ``cleaning``.
    """

    def __init__(self) -> None:
        """Listen to nothing yet."""
        self._signals = 0
        self._abrupt = False
        self._cleaning = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Begin to listen."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more; signals have the meaning that they had before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Say whether the run is to end."""
        return self._signals > 0

    @contextmanager
    def abrupt(self) -> Iterator[None]:
        """Let a signal raise ``Interrupted`` here, also one that came before."""
        if self._signals:
            raise Interrupted
        self._abrupt = True
        try:
            yield
        finally:
            self._abrupt = False

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Let no signal break off what removes things; it takes a few seconds at most."""
        before, self._cleaning = self._cleaning, True
        try:
            yield
        finally:
            self._cleaning = before

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if not self._cleaning and (self._abrupt or self._signals > 1):
            raise Interrupted


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
