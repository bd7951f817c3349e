"""Files of a trial on a host: put there, and looked at after their journey."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.workloads.corpus import File

_AT_ONCE: Final = 200
_LOOK_LIMIT_S: Final = 60.0
_SLOWEST_DIGEST_BYTES_S: Final = 5e6
"""Of an emulated machine; everything else is faster."""
_LINE_LIMIT_S: Final = 10.0
_MOST_NAMED: Final = 3


def put_files(host: Host, folder: PurePosixPath, files: Sequence[File]) -> None:
    """Write the files into a folder; a full disk is a ``LabError``."""
    host.run(["mkdir", "-p", "-m", "700", "--", str(folder)])
    for file in files:
        host.put(folder / file.name, file.data)


def sizes(host: Host, folder: PurePosixPath) -> dict[str, int]:
    """Return the files in a folder by name with their bytes; those that are not ours are left out.

    A symbolic link counts as what it points to.
    """
    argv = ["find", "-L", str(folder), "-maxdepth", "1", "-type", "f", "-printf", "%s %f\\n"]
    found = {}
    for line in host.run(argv, timeout_s=_LOOK_LIMIT_S).text().splitlines():
        size, _, name = line.partition(" ")
        if size.isdigit() and name:
            found[name] = int(size)
    return found


def damaged(host: Host, folder: PurePosixPath, files: Sequence[File]) -> list[str]:
    """Return one line for each file in the folder that is not what was sent."""
    there = sizes(host, folder)
    problems = [f"{f.name} did not arrive" for f in files if f.name not in there]
    present = [file for file in files if file.name in there]
    digests = _digests(host, folder, present)
    for file in present:
        if there[file.name] != len(file.data):
            problems.append(f"{file.name} has {there[file.name]} bytes of {len(file.data)}")
        elif digests.get(file.name) != file.sha256:
            problems.append(f"{file.name} is damaged: its SHA-256 is not what was sent")
    return problems


def few(problems: Sequence[str]) -> str:
    """Return the first problems and how many more there are, for one message."""
    more = len(problems) - _MOST_NAMED
    return "; ".join(problems[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def reported(process: Process) -> list[str]:
    """Return the lines of a program that has ended and was started with ``lines``."""
    lines = []
    try:
        while (line := process.read_line(_LINE_LIMIT_S)) is not None:
            lines.append(line)
    except TimeoutError:
        pass  # something it started holds its output open: what came is what there is
    return lines


def batches(files: Sequence[File]) -> Iterable[tuple[File, ...]]:
    """Return the files in lots that fit on a command line."""
    rest = iter(files)
    while lot := tuple(itertools.islice(rest, _AT_ONCE)):
        yield lot


def _digests(host: Host, folder: PurePosixPath, files: Sequence[File]) -> dict[str, str]:
    found: dict[str, str] = {}
    for lot in batches(files):
        limit_s = _LOOK_LIMIT_S + sum(len(f.data) for f in lot) / _SLOWEST_DIGEST_BYTES_S
        argv = ["sha256sum", "--", *(str(folder / file.name) for file in lot)]
        lines = host.run(argv, timeout_s=limit_s).text().splitlines()
        if len(lines) != len(lot):
            raise LabError(f"{host.name}: sha256sum reported {len(lines)} files, not {len(lot)}")
        found |= {f.name: line.split(" ")[0] for f, line in zip(lot, lines, strict=True)}
    return found
