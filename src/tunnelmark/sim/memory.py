"""Memory that a trial gives back is kept for the next one.

The system clears each page that it hands out: of a trial with millions of packets that takes a
fifth of the time. Dask's workers ask for the opposite.
"""

import ctypes
import sys
from types import MappingProxyType
from typing import Final

_LARGEST_KEPT_BYTES: Final = 32 << 20
"""What the GNU C library takes at most (mallopt(3)); longer arrays are the system's as ever."""
_FREE_KEPT_BYTES: Final = 1 << 30
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3

KEPT_BY_ENGINE: Final = MappingProxyType(
    {
        "MALLOC_MMAP_THRESHOLD_": str(_LARGEST_KEPT_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_FREE_KEPT_BYTES),
    }
)
"""Environment of the engine that has it do the same."""


def keep_freed_memory() -> None:
    """Let this process keep what it frees; only the GNU C library of Linux is asked to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_KEPT_BYTES)
