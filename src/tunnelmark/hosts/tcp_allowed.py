"""Congestion controls of TCP that the namespaces of this computer may use: a switch of the ledger.

Linux lets another network namespace than the first choose only from the first one's list of what is
allowed. Programs of this computer may choose what a run puts there; no default changes.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"^[a-z0-9_-]{1,15}$")
_LIST: Final = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def is_name(name: str) -> bool:
    """Say whether a congestion control can be called that."""
    return _NAME.fullmatch(name) is not None


def may(_name: str) -> bool:
    """Say whether the list may be written: in other namespaces than the first nobody may."""
    return os.access(_LIST, os.W_OK)


def is_on(name: str) -> bool:
    """Say whether namespaces may use it."""
    try:
        return name in _LIST.read_text(encoding="ascii").split()
    except OSError:
        return False


def on(name: str) -> bool:
    """Put a name into the list; return whether it is there: the kernel must have it."""
    if not is_name(name):
        return False
    try:
        with _locked() as names:
            if name not in names:
                _LIST.write_text(" ".join([*names, name]), encoding="ascii")
    except OSError:
        return False
    return True


def off(name: str) -> bool:
    """Take a name out of the list, and no other; return whether it was there."""
    try:
        with _locked() as names:
            if name not in names:
                return False
            _LIST.write_text(" ".join(one for one in names if one != name), encoding="ascii")
    except OSError:
        return False
    return True


def reported(name: str) -> str:
    """Return the message after it was taken out."""
    return f"congestion control {name} from what namespaces may use"


@contextmanager
def _locked() -> Iterator[list[str]]:
    """Return what is in the list; runs of other folders change it no more meanwhile."""
    with _LIST.open(encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.read().split()
