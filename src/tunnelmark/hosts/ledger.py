"""Whoever opens, closes: what a run is about to make is written down before it exists.

A ledger is a directory with a lock that its run holds for as long as it lives, and a journal. When
the lock is free and the directory is still there, the run is dead and its journal says what it
left behind. The journal is untrusted when it is read again: only names of ours are acted upon.
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
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from tunnelmark.hosts import tcp_allowed
from tunnelmark.hosts.cgroup import remove_group
from tunnelmark.model.errors import LabError

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where workloads keep files off the disk

Kind = Literal["process", "netns", "directory", "cgroup", "tcp_allowed"]

RUN_ID: Final = re.compile(r"^tm[0-9a-f]{5}$")
_NAME: Final = re.compile(r"^tm[0-9a-f]{5}(-[a-z0-9-]{1,40})?$")
_JOURNAL_LIMIT_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Entry:
    """One thing that a run made, or was about to make."""

    kind: Kind
    name: str
    """Name of the namespace or congestion control, path of the directory or control group, or
    process id."""
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
        while True:
            self.run_id = f"tm{secrets.token_hex(3)[:5]}"
            self.directory = base / self.run_id
            with contextlib.suppress(FileExistsError):
                self.directory.mkdir(mode=0o700)
                break
        self._lock = (self.directory / "owner").open("w", encoding="ascii")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        self._journal = (self.directory / "journal.jsonl").open("a", encoding="utf-8")
        self.work_dir = self.directory / "work"
        self.work_dir.mkdir(mode=0o700)

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is still there of what was entered, and the ledger."""
        self.close()

    def enter(self, kind: Kind, name: str, started: int = 0) -> Entry:
        """Write down what is about to be made; on disk when this returns."""
        entry = Entry(kind, name, started)
        self._journal.write(json.dumps({"kind": kind, "name": name, "started": started}) + "\n")
        self._journal.flush()
        return entry

    def close(self) -> list[str]:
        """Undo all entries, newest first, and remove the ledger; return what was removed."""
        if self._lock.closed:
            return []
        self._journal.close()
        removed = undo(self.run_id, read_journal(self.directory))
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock.close()
        return removed


def dead_ledgers(root: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Return (run id, directory) of every ledger whose run is dead."""
    base = root or runtime_root()
    for directory in sorted(base.iterdir()):
        if not RUN_ID.match(directory.name) or directory.is_symlink() or not directory.is_dir():
            continue
        try:
            with (directory / "owner").open("r", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            # Killed between making the directory and the lock, or being made right now.
            if time.time() - directory.lstat().st_mtime < 10:  # noqa: PLR2004 - seconds
                continue
        except BlockingIOError:
            continue
        yield directory.name, directory


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
    """Remove what is still there, newest first; return one line for each thing removed."""
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
    for entry in reversed(entries):
        if entry.kind == "directory" and Path(entry.name).exists():
            shutil.rmtree(entry.name, ignore_errors=True)
            removed.append(f"directory {entry.name}")
    removed += [
        f"congestion control {entry.name} from what namespaces may use"
        for entry in reversed(entries)
        if entry.kind == "tcp_allowed" and tcp_allowed.forbid(entry.name)
    ]
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
    told = raw if isinstance(raw, Mapping) else {}
    kind, name, started = told.get("kind"), told.get("name"), told.get("started", 0)
    if not isinstance(name, str) or not isinstance(started, int):
        return None
    if kind == "process" and name.isdecimal() and len(name) < 10:  # noqa: PLR2004 - pid_max
        return Entry("process", name, started)
    if kind == "netns" and _NAME.match(name) and name.startswith(run_id):
        return Entry("netns", name)
    if kind == "tcp_allowed" and tcp_allowed.NAME.fullmatch(name):
        return Entry("tcp_allowed", name)
    if kind in {"directory", "cgroup"} and _is_ours(Path(name), run_id):
        return Entry("cgroup" if kind == "cgroup" else "directory", name)
    return None


def _is_ours(path: Path, run_id: str) -> bool:
    """Say whether what is outside the ledger has the run's name and is no link to elsewhere."""
    if not _NAME.match(path.name) or not path.name.startswith(run_id):
        return False
    return path.is_absolute() and ".." not in path.parts and not path.is_symlink()


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
