"""Which build of each program stands here: the same words whenever it is the same."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_FLAGS: Final = {"ip": "-V"}
_NUMBER: Final = re.compile(r"\d+\.\d+|\bv\d+\b")
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d")
_SAID_LINES: Final = 3
_LONGEST: Final = 200
_LIMIT_S: Final = 5.0


def versions(programs: Iterable[str]) -> dict[str, str]:
    """Return what each program says of its version, else its package, else its SHA-256.

    What programs answer to an option that they do not know is no version: socat's answer has the
    time and its process id. Those that are not here are left out.
    """
    places = {name: Path(place) for name in sorted(set(programs)) if (place := shutil.which(name))}
    said = {
        name: line
        for name, place in places.items()
        if (line := said_version(*answer([str(place), _FLAGS.get(name, "--version")])))
    }
    silent = {name: place for name, place in places.items() if name not in said}
    packages = _packages(silent.values())
    return {
        name: said.get(name) or packages.get(place) or _digest(place)
        for name, place in places.items()
    }


def said_version(status: int, text: str) -> str:
    """Return the line of an answer to ``--version`` that has a version; empty if none has."""
    lines = [line.strip() for line in text.strip().splitlines()]
    for line in lines[: 1 if status else _SAID_LINES]:
        if _NUMBER.search(line) and not _TIME.search(line):
            return line[:_LONGEST]
    return ""


def _packages(places: Iterable[Path]) -> Mapping[Path, str]:
    """Return package and version of files, where dpkg knows them."""
    # A merged /usr has files of packages that name /bin, too.
    forms = {
        str(form): place
        for place in places
        for form in {place, place.resolve(), Path("/", *place.parts[2:])}
    }
    if not forms:
        return {}
    _status, found = answer(["dpkg-query", "--search", *forms])
    owners = {}
    for line in found.splitlines():
        package, _, file = line.rpartition(": ")
        if file in forms and "," not in package:
            owners[forms[file]] = package
    words = ["dpkg-query", "--show", "--showformat", "${binary:Package}\t${Version}\n"]
    _status, shown = answer([*words, *sorted(set(owners.values()))]) if owners else (0, "")
    version = dict(line.split("\t", 1) for line in shown.splitlines() if "\t" in line)
    return {
        place: f"{package.partition(':')[0]} {version[package]} (package)"
        for place, package in owners.items()
        if package in version
    }


def _digest(place: Path) -> str:
    try:
        with place.open("rb") as file:
            return f"SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    except OSError:
        return "unreadable"


def answer(argv: list[str]) -> tuple[int, str]:
    """Return the status and what was said; nothing of a program that does not start or end."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LIMIT_S,
            env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, ""
    said = done.stdout if done.stdout.strip() else done.stderr
    return done.returncode, said.decode("utf-8", "replace")
