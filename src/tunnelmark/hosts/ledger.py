"""Whoever opens, closes: what a run is about to make is written down before it exists.

A ledger is a directory with a lock that its run holds for as long as it lives, and a journal. When
the lock is free and the directory is still there, the run is dead and its journal says what it
left behind. The journal is untrusted when it is read again: only names of ours are acted upon.

The lock of all ledgers (``_alone``) is held for moments: while one is made, found dead or removed,
and while something is switched on or off for all programs of this computer.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, get_args

from tunnelmark.hosts.cgroup import remove_group
from tunnelmark.hosts.families import Families
from tunnelmark.hosts.switches import SWITCHES, SwitchKind
from tunnelmark.model.errors import LabError

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where workloads keep files off the disk

Kind = Literal["process", "netns", "cgroup"] | SwitchKind

RUN_ID: Final = re.compile(r"^tm[0-9a-f]{5}$")
_NAME: Final = re.compile(r"^tm[0-9a-f]{5}(-[a-z0-9-]{1,40})?$")
_JOURNAL_LIMIT_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Entry:
    """One thing that a run made, or was about to make."""

    kind: Kind
    name: str
    """Name of the namespace or congestion control, path of the control group, or process id. A CPU
    controller: path of the group in which it was switched on."""
    started: int = 0
    """Processes: start time in clock ticks since boot, so that a reused id is not mistaken."""


def runtime_root() -> Path:
    """Return the directory that holds all ledgers of this user.

    ``TUNNELMARK_RUNTIME`` overrides it. It is not under ``/run``: daemons that see a private copy
    of ``/run`` must still see their files.
    """
    override = os.environ.get("TUNNELMARK_RUNTIME")
    root = Path(override or Path(tempfile.gettempdir()) / f"tunnelmark-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700, parents=True)
    state = root.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LabError(f"{root} must be a directory of user {os.getuid()} alone (mode 700)")
    return root


class Ledger:
    """The ledger of a run that lives. Use as a context manager: leaving undoes everything."""

    def __init__(self, root: Path | None = None) -> None:
        """Choose a run id that is free and take its lock."""
        base = root or runtime_root()
        with _alone(base):
            self.run_id, self.directory = _free(base)
            self._lock = _take(self.directory)
        self._closed = False
        os.write(self._lock, f"{os.getpid()}\n".encode("ascii"))
        self._journal = (self.directory / "journal.jsonl").open("a", encoding="utf-8")
        self.work_dir = self.directory / "work"
        self.work_dir.mkdir(mode=0o700)
        self.families = Families(self.run_id, lambda path: self.enter("cgroup", str(path)))

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is still there of what was entered, and the ledger."""
        self.close()

    def enter(self, kind: Kind, name: str, started: int = 0) -> None:
        """Write down what is about to be made; on disk when this returns."""
        self._journal.write(json.dumps({"kind": kind, "name": name, "started": started}) + "\n")
        self._journal.flush()

    def in_memory(self, name: str) -> Path:
        """Return a directory of the run for files of moments, in memory where there is one.

        It is not made; what is there when the run ends, or is dead, is removed.
        """
        usable = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
        return (_SHARED_MEMORY / f"{self.run_id}-{name}") if usable else self.work_dir / name

    def switch_on(self, kind: SwitchKind, name: str) -> bool:
        """Switch something on for all programs of this computer, until the last run with it ends.

        What is on without any run stays on. Returns whether it is on: not everybody may do it.
        """
        switch = SWITCHES[kind]
        with _alone(self.directory.parent):
            mine = Entry(kind, name)
            if switch.is_on(name) and mine not in _switched_by_others(self.directory):
                return True  # nobody's to switch off, or this run's already
            if not switch.may(name):
                return switch.is_on(name)
            if mine not in read_journal(self.directory):
                self.enter(kind, name)
            return switch.on(name)

    def close(self) -> list[str]:
        """Undo all entries, newest first, and remove the ledger; return what was removed."""
        if self._closed:
            return []
        self._closed = True
        self._journal.close()
        try:
            return _end(self.directory)
        finally:
            os.close(self._lock)


class DeadLedger:
    """The ledger of a run that is dead, held: nobody else cleans it meanwhile."""

    def __init__(self, directory: Path, lock: int) -> None:
        """Take over the lock, an open file."""
        self.run_id, self.directory = directory.name, directory
        self._lock: int | None = lock

    def clean(self) -> list[str]:
        """Undo what its journal names, remove it and let go of it; return what was removed."""
        try:
            return _end(self.directory)
        finally:
            self.release()

    def release(self) -> None:
        """Let go of it; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def dead_ledgers(root: Path | None = None) -> list[DeadLedger]:
    """Return every ledger whose run is dead and that nobody else cleans, held for the caller."""
    base = root or runtime_root()
    found = []
    with _alone(base):
        for directory in _ledgers(base):
            with contextlib.suppress(BlockingIOError):
                found.append(DeadLedger(directory, _take(directory)))
    return found


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Keep others from making, finding and removing ledgers meanwhile."""
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _free(base: Path) -> tuple[str, Path]:
    while True:
        run_id = f"tm{secrets.token_hex(3)[:5]}"
        with contextlib.suppress(FileExistsError):
            (base / run_id).mkdir(mode=0o700)
            return run_id, base / run_id


def _take(directory: Path) -> int:
    """Return the lock of a ledger as an open file; ``BlockingIOError`` if another holds it.

    A ledger without its file is that of a run that was killed before it had one, or behind it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory / "owner", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _ledgers(base: Path) -> list[Path]:
    found = sorted(path for path in base.iterdir() if RUN_ID.match(path.name))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _end(directory: Path) -> list[str]:
    """Undo what the journal of a ledger names and remove it; its lock is held."""
    entries = read_journal(directory)
    removed = undo(directory.name, entries)
    shutil.rmtree(directory / "work", ignore_errors=True)
    with _alone(directory.parent):
        # As long as the journal is there, this run holds what it switched on.
        removed += _switch_off(entries, _switched_by_others(directory))
        shutil.rmtree(directory, ignore_errors=True)
    return removed


def _switched_by_others(directory: Path) -> set[Entry]:
    others = [path for path in _ledgers(directory.parent) if path.name != directory.name]
    return {entry for path in others for entry in read_journal(path) if entry.kind in SWITCHES}


def _switch_off(entries: Iterable[Entry], held: set[Entry]) -> list[str]:
    """Switch off what no other run holds; return one line for each thing that was on."""
    return [
        SWITCHES[entry.kind].reported(entry.name)
        for entry in reversed(list(entries))
        if entry.kind in SWITCHES and entry not in held and SWITCHES[entry.kind].off(entry.name)
    ]


def read_journal(directory: Path) -> list[Entry]:
    """Return the entries of a journal that name things of its own run; others are passed over."""
    path = directory / "journal.jsonl"
    try:
        if path.is_symlink() or path.stat().st_size > _JOURNAL_LIMIT_BYTES:
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    entries = (_entry(_parsed(line), directory.name) for line in lines)
    return [entry for entry in entries if entry is not None]


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None  # the last line of a run that was killed while writing it


def undo(run_id: str, entries: list[Entry]) -> list[str]:
    """Remove what is still there and this run's alone; return one line for each thing removed.

    The newest goes first. What was switched on for all programs goes with the ledger.
    """
    namespaces = [entry.name for entry in entries if entry.kind == "netns"]
    removed = [
        f"process {entry.name} of {run_id}"
        for entry in reversed(entries)
        if entry.kind == "process" and end_process(int(entry.name), entry.started)
    ]
    for name in namespaces:
        removed += [f"process {pid} in namespace {name}" for pid in _end_inhabitants(name)]
    removed += [
        f"control group {entry.name}"
        for entry in reversed(entries)
        if entry.kind == "cgroup" and remove_group(Path(entry.name))
    ]
    for name in reversed(namespaces):
        if _delete_namespace(name):
            removed.append(f"network namespace {name}")
    for path in _in_memory(run_id):
        shutil.rmtree(path, ignore_errors=True)
        removed.append(f"directory {path}")
    return removed


def _in_memory(run_id: str) -> list[Path]:
    """Return what workloads left in memory, all of it named after the run."""
    if not RUN_ID.match(run_id):
        return []
    found = _SHARED_MEMORY.glob(f"{run_id}-*")
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    # proc(5): field 22; the state, field 3, is the first behind the name. A zombie has ended.
    return None if fields[0] in "ZX" else int(fields[19])


def end_process(pid: int, started: int) -> bool:
    """Kill a process if it is still the one that started then."""
    if start_time(pid) != started or pid <= 1:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def _entry(raw: object, run_id: str) -> Entry | None:
    reported = raw if isinstance(raw, Mapping) else {}
    kind, name, started = reported.get("kind"), reported.get("name"), reported.get("started", 0)
    if not isinstance(name, str) or not isinstance(started, int):
        return None
    if kind == "process" and name.isdecimal() and len(name) < 10:  # noqa: PLR2004 - pid_max
        return Entry("process", name, started)
    if kind == "netns" and _NAME.match(name) and name.startswith(run_id):
        return Entry("netns", name)
    for switch in get_args(SwitchKind):
        if kind == switch and SWITCHES[switch].is_name(name):
            return Entry(switch, name)
    if kind == "cgroup" and _is_ours(Path(name), run_id):
        return Entry("cgroup", name)
    return None


def _is_ours(path: Path, run_id: str) -> bool:
    """Say whether what is outside the ledger has the run's name and is no link to elsewhere."""
    if not _NAME.match(path.name) or not path.name.startswith(run_id):
        return False
    if not path.is_absolute() or ".." in path.parts:
        return False
    try:
        return not stat.S_ISLNK(path.lstat().st_mode)
    except FileNotFoundError:
        return True  # not made yet, or gone
    except (OSError, ValueError):
        return False  # a name that no file can have, or a place that this user may not look at


def _end_inhabitants(namespace: str) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False, timeout=10
    )
    pids = [int(word) for word in found.stdout.split() if word.isdecimal()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _delete_namespace(name: str) -> bool:
    done = subprocess.run(
        ["ip", "netns", "delete", name], capture_output=True, check=False, timeout=10
    )
    return done.returncode == 0
