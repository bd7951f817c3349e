"""Modules that the kernel loads because a run asks for what is in them.

They stay: another program may have come to use one, and taking one out is a risk of its own. The
run says which they are.
"""

from collections.abc import Iterable
from pathlib import Path


def loaded(path: Path = Path("/proc/modules")) -> frozenset[str]:
    """Return the names of the modules that are loaded; nothing where the kernel has none."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line.split()[0] for line in lines if line.strip())


def reported(before: Iterable[str], after: Iterable[str]) -> str | None:
    """Return what is said of modules that were loaded meanwhile, or None if there are none."""
    names = " ".join(sorted(set(after) - set(before)))
    return (
        f"kernel modules that the run loaded and left in place: {names} (modprobe -r {names})"
        if names
        else None
    )
