"""The CPU controller of a control group of version 2, for the groups in it: a switch of the ledger.

It is named by the path of the group. See ``Documentation/admin-guide/cgroup-v2.rst``.
"""

import contextlib
import os
from pathlib import Path

from tunnelmark.hosts import cgroup
from tunnelmark.model.errors import LabError


def is_name(name: str) -> bool:
    """Say whether that is where this computer's CPU limits are made."""
    with contextlib.suppress(LabError, OSError):
        found = cgroup.find_controller()
        return found.version == 2 and found.root == Path(name)  # noqa: PLR2004 - control groups
    return False


def may(name: str) -> bool:
    """Say whether this process may switch it."""
    return os.access(_control(name), os.W_OK)


def is_on(name: str) -> bool:
    """Say whether groups in it have it."""
    try:
        return "cpu" in _control(name).read_text(encoding="ascii").split()
    except OSError:
        return False


def on(name: str) -> bool:
    """Switch it on; return whether it is on."""
    with contextlib.suppress(OSError):
        _control(name).write_text("+cpu", encoding="ascii")
    return is_on(name)


def off(name: str) -> bool:
    """Switch it off; return whether it was on. The kernel keeps it where groups pass it on."""
    if not is_on(name):
        return False
    try:
        _control(name).write_text("-cpu", encoding="ascii")
    except OSError:
        return False
    return True


def reported(name: str) -> str:
    """Return the message after it was switched off."""
    return f"CPU controller for the groups in {name}"


def _control(name: str) -> Path:
    return Path(name) / "cgroup.subtree_control"
