"""Congestion controls of TCP that the namespaces of this computer may use.

Linux lets another network namespace than the first choose only from the first one's list of what is
allowed. Programs of this computer may choose what a run puts there; no default changes.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"^[a-z0-9_-]{1,15}$")
_LIST: Final = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def allow(name: str, enter: Callable[[str], object]) -> bool:
    """Put a name into the list; ``enter`` is called before, unless it is there already.

    Returns whether it is there: only root of the first namespaces may, and for what the kernel has.
    """
    # In other namespaces the kernel shows the list as one that nobody may write.
    if not NAME.fullmatch(name) or not os.access(_LIST, os.W_OK):
        return False
    try:
        with _locked() as names:
            if name not in names:
                enter(name)
                _LIST.write_text(" ".join([*names, name]), encoding="ascii")
    except OSError:
        return False
    return True


def forbid(name: str) -> bool:
    """Take a name out of the list, and no other; return whether it was there."""
    try:
        with _locked() as names:
            if name not in names:
                return False
            _LIST.write_text(" ".join(one for one in names if one != name), encoding="ascii")
    except OSError:
        return False
    return True


@contextmanager
def _locked() -> Iterator[list[str]]:
    """Return what is in the list; no other run changes it meanwhile."""
    with _LIST.open(encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.read().split()
