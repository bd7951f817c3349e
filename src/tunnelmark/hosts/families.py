"""A program and all that it forks: it starts in a control group of its own and they end with that.

Groups of processes and sessions do not hold what a daemon puts into the background; a control group
does, also when the run was killed. No controller is used: nothing is limited or weighed. Where no
group can be made (without root, where a PID namespace holds everything) there is no family.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tunnelmark.hosts.cgroup import own_group, remove_tree

_MOST_WEIGHT: Final = 10_000
# Arguments: the file by which a group is entered (or nothing), what is read as standard input (or
# nothing: the rest of ours), then the program. The line that is read comes when the process is in
# the ledger: a program whose run was killed before never starts.
_BEGIN: Final = (
    'read -r line || exit 125; [ -z "$1" ] || echo $$ > "$1" || exit 125; from=$2; shift 2; '
    '[ -z "$from" ] || exec < "$from"; exec "$@"'
)
BEGIN: Final = b"\n"
"""What is written to the standard input of a program when it may start."""


class Family:
    """The group of one program."""

    def __init__(self, path: Path) -> None:
        """Take a group that was made."""
        self.path = path

    @property
    def procs_file(self) -> Path:
        """What a process writes its id to when it enters."""
        return self.path / "cgroup.procs"

    def leave(self) -> None:
        """Remove it if nothing is in it any more."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def end(self) -> None:
        """Kill everything in it and remove it; tolerates being called twice."""
        remove_tree(self.path)


class Families:
    """The families of a run."""

    def __init__(
        self,
        run_id: str,
        enter: Callable[[Path], object],
        place: Callable[[], Path | None] | None = None,
    ) -> None:
        """``enter`` is called with the group that holds them all, before it is made.

        ``place`` is where that group is made, else where this process stands.
        """
        self._name = f"{run_id}-programs"
        self._enter = enter
        self._place = place or _find_place
        self._numbers = itertools.count()
        self._all: Path | None = None
        self._looked = False

    def new(self) -> Family | None:
        """Return an empty family, or None where there are none."""
        if not self._looked:
            self._looked = True
            self._all = self._made()
        if self._all is None:
            return None
        self._weigh(self._all)
        path = self._all / f"p{next(self._numbers)}"
        try:
            path.mkdir()
        except OSError:
            return None
        return Family(path)

    def _made(self) -> Path | None:
        place = self._place()
        if place is None:
            return None
        path = place / self._name
        self._enter(path)
        try:
            path.mkdir()
            kind = path / "cgroup.type"
            if not kind.exists() or kind.read_text(encoding="ascii").strip() == "domain":
                return path
            path.rmdir()  # below a group of threads: it takes no processes
        except OSError:
            pass
        return None

    @staticmethod
    def _weigh(group: Path) -> None:
        """Take nothing from its programs where groups beside it are weighed."""
        weight = group / "cpu.weight"
        if weight.exists():
            with contextlib.suppress(OSError):
                weight.write_text(str(_MOST_WEIGHT), encoding="ascii")


def beginning(family: Family | None, argv: Sequence[str], *, stdin: bool) -> list[str]:
    """Return the words that start a program in its family once ``BEGIN`` is written to them.

    With ``stdin`` it reads what is written after that, else nothing.
    """
    entered = "" if family is None else str(family.procs_file)
    return ["sh", "-c", _BEGIN, "begin", entered, "" if stdin else os.devnull, *argv]


def _find_place() -> Path | None:
    """Return a group in which groups can be made that only hold processes together."""
    found = own_group("") or own_group("pids") or own_group("freezer")
    return found if found is not None and os.access(found, os.W_OK) else None
