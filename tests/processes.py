"""Processes as /proc has them, which may end while it is read."""

from pathlib import Path


def command_line(pid: int | str) -> bytes:
    """Return a process's arguments, a zero byte behind each; empty if they cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def command_lines() -> dict[int, bytes]:
    """Return those of all processes of this computer, by process id."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {pid: words for pid in pids if (words := command_line(pid))}
