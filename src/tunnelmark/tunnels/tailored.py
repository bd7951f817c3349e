"""Programs, options and lines of files that a study gives in place of, or beside, a driver's own.

A driver starts programs and writes files through its hosts. ``TailoredHost`` stands before a host
and puts in what the study gives, so that no driver has to know of it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Completed, Host, Process

ProgramPath = Annotated[str, Field(pattern=r"^/[^\x00-\x20]{1,1000}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
ProgramName = Annotated[str, Field(min_length=1, max_length=64)]

_WRAPPERS: Final = frozenset({"nsenter", "unshare", "sh", "env"})
_SHOWN_CHARACTERS: Final = 500
_NO_ENV: Final[Mapping[str, str]] = {}


def _words(line: str) -> str:
    try:
        shlex.split(line)
    except ValueError as error:
        raise ValueError(f"is not an option: {error}") from error
    return line


Option = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_words)]
"""One option with its value: ``--fragment 1300``; split into words, read by no shell."""


@dataclass(frozen=True)
class Tailoring:
    """What a study gives of its own."""

    words: Mapping[str, str] = field(default_factory=dict)
    """Program by its name to the word by which the driver starts it."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Program by its name to the path of the one to start."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Program by its name to words for its command line."""
    lead: frozenset[str] = frozenset()
    """Programs that take options before all others, and the first of two that contradict."""
    append: Mapping[str, str] = field(default_factory=dict)
    """Name of a file that the driver writes to what is put behind its text."""

    def __bool__(self) -> bool:
        """Say whether there is anything of it."""
        return bool(self.programs or self.options or self.append)

    def unknown(self) -> str | None:
        """Return what is given for a program that the driver does not start, or None."""
        for what, given in (("program", self.programs), ("options", self.options)):
            for name in given:
                if name not in self.words:
                    known = ", ".join(self.words)
                    only = f"; it can be for {known}" if known else ""
                    return f"{what} cannot be set{' for ' + name if name else ''}{only}"
        return None


class TailoredHost:
    """A host as a driver is handed it: the programs of the study are those that it starts."""

    def __init__(self, host: Host, tailoring: Tailoring) -> None:
        """Stand before ``host``."""
        self._host = host
        self._tailoring = tailoring
        self._named = {word: name for name, word in tailoring.words.items()}
        self._named |= {path: name for name, path in tailoring.programs.items()}
        self.used: set[str] = set()
        """Programs by their names that were run or started."""
        self.spawned: set[str] = set()
        """Those of them that were started as daemons."""
        self.written: set[str] = set()
        """Files by their names."""

    @property
    def name(self) -> str:
        """That of the host."""
        return self._host.name

    @property
    def unique(self) -> str:
        """That of the host."""
        return self._host.unique

    @property
    def work_dir(self) -> PurePosixPath:
        """That of the host."""
        return self._host.work_dir

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NO_ENV,
        check: bool = True,
    ) -> Completed:
        """Run a program, the study's own in place of the driver's."""
        words, _ = self._replaced(argv)
        return self._host.run(words, timeout_s=timeout_s, stdin=stdin, env=env, check=check)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = _NO_ENV,
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> Process:
        """Start a program, the study's own in place of the driver's, with the study's options."""
        words, at = self._replaced(argv)
        if at is not None:
            program = self._named[argv[at]]
            self.spawned.add(program)
            more = self._tailoring.options.get(program, ())
            place = at + 1 if program in self._tailoring.lead else len(words)
            words[place:place] = more
        return self._host.spawn(
            words, name=name, stdin=stdin, env=env, private_dirs=private_dirs, lines=lines
        )

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file, what the study appends behind it."""
        self.written.add(path.name)
        more = self._tailoring.append.get(path.name)
        if more is not None:
            data = data.rstrip(b"\n") + b"\n" + more.encode() + b"\n"
        self._host.put(path, data, mode=mode)

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read a file."""
        return self._host.get(path, limit_bytes=limit_bytes)

    def has(self, program: str) -> str | None:
        """Return the path of the program that would be started, or None."""
        name = self._named.get(program)
        given = self._tailoring.programs.get(name) if name is not None else None
        return self._host.has(given if given is not None else program)

    def has_kernel(self, feature: str) -> bool:
        """Say whether the kernel has a feature."""
        return self._host.has_kernel(feature)

    def missing(self) -> str | None:
        """Return which program of the study is not on this host, or None."""
        for name, path in self._tailoring.programs.items():
            if self._host.has(path) is None:
                return f"{path}, which the study gives as {name}, is not a program here"
        return None

    def _replaced(self, argv: Sequence[str]) -> tuple[list[str], int | None]:
        """Return the words to run, and where among them a program of the driver stands."""
        words = list(argv)
        places = range(len(words)) if words and words[0] in _WRAPPERS else range(min(1, len(words)))
        at = next((place for place in places if words[place] in self._named), None)
        if at is not None:
            name = self._named[words[at]]
            self.used.add(name)
            words[at] = self._tailoring.programs.get(name, words[at])
        return words, at


def reported(tailoring: Tailoring, hosts: Sequence[TailoredHost]) -> dict[str, str]:
    """Return what a result says of all this; raises ``RefusedError`` for what was of no effect."""
    used, spawned, written = (
        {name for host in hosts for name in getattr(host, which)}
        for which in ("used", "spawned", "written")
    )
    for what, given, known in (
        ("the program", tailoring.programs, used),
        ("options for", tailoring.options, spawned),
    ):
        for name in given:
            if name not in known:
                raise RefusedError(
                    f"the study gives {what} {name}, which this tunnel did not start; it started "
                    f"{', '.join(sorted(known)) or 'no program that can be set'}"
                )
    for name in tailoring.append:
        if name not in written:
            raise RefusedError(
                f"the study appends to {name}, a file that this tunnel does not write; it writes "
                f"{', '.join(sorted(written))}"
            )
    details = {
        f"program_{name}": f"{path} (SHA-256 {_digest(hosts[0], path)})"
        for name, path in tailoring.programs.items()
    }
    details |= {f"options_{name}": shlex.join(words) for name, words in tailoring.options.items()}
    details |= {f"appended_{name}": text for name, text in tailoring.append.items()}
    return {name: text[:_SHOWN_CHARACTERS] for name, text in details.items()}


def _digest(host: TailoredHost, path: str) -> str:
    """Return the start of a program's SHA-256: two builds may say that they are one version."""
    done = host.run(["sha256sum", path], check=False)
    words = done.text().split()
    return words[0][:16] if done.returncode == 0 and words else "unknown"
