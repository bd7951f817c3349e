"""Idle cores of this computer that wait awake while labs stand on it.

A core that has fallen asleep must be woken up before a timer or a packet is served. From a
hypervisor it must get a core again first, which takes milliseconds where that has other guests, and
counts as stolen time. Linux lets whoever holds ``/dev/cpu_dma_latency`` open with a latency of 0
keep them awake (Documentation/power/pm_qos_interface.rst); cyclictest does so too. They still count
as idle.
"""

import os
import struct
from pathlib import Path
from typing import Final, Self

_LATENCY: Final = Path("/dev/cpu_dma_latency")
_DRIVER: Final = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_NO_DRIVER: Final = ("", "none")


class Awake:
    """Keeps them awake as a context manager, where the system lets it; several may do so at once.

    The request is gone with the process, however it ends.
    """

    def __init__(self, latency: Path = _LATENCY, driver: Path = _DRIVER) -> None:
        """Hold nothing yet."""
        self._latency, self._driver = latency, driver
        self._held: int | None = None

    def __enter__(self) -> Self:
        """Ask for it."""
        if self.problem() is None:
            self._held = self._opened()
            os.write(self._held, struct.pack("=i", 0))
        return self

    def __exit__(self, *_: object) -> None:
        """Let them sleep again."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def problem(self) -> str | None:
        """Return why it cannot be asked for, or None."""
        try:
            driver = self._driver.read_text(encoding="ascii").strip()
        except OSError:
            driver = ""
        if driver in _NO_DRIVER:
            return "the kernel has no cpuidle driver"
        try:
            os.close(self._opened())
        except OSError as error:
            return f"{self._latency}: {error.strerror}"
        return None

    def describe(self) -> str:
        """Return what the environment of a result says of idle cores."""
        problem = self.problem()
        return "wait awake" if problem is None else f"may sleep ({problem})"

    def _opened(self) -> int:
        return os.open(self._latency, os.O_WRONLY | os.O_CLOEXEC)
