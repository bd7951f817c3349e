"""Which agent and engine run on a host, by what its ``uname -sm`` says."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import tunnelmark
from tunnelmark.hosts.vm_payload import AGENT, ENGINE, Payload
from tunnelmark.model.errors import LabError

BOARDS: Final[Mapping[str, str]] = MappingProxyType(
    {"aarch64": "arm64", "armv7l": "armv7", "armv6l": "armv6"}
)
"""What ``uname -m`` says, and the name for ``scripts/engines``, which builds for it."""
FOLDER_VARIABLE: Final = "TUNNELMARK_ENGINES"
"""Of the environment: another folder in place of this package's."""
FOLDER: Final = Path(tunnelmark.__file__).parent / "engines"
"""Of this package; by architecture, as ``scripts/engines`` leaves them there."""

# An ARM runs programs for older ones; armv8l is a 64-bit one that presents itself as 32-bit.
_RUNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"armv7l": ("armv7l", "armv6l"), "armv8l": ("armv7l", "armv6l")}
)
_MACHINES: Final[Mapping[int, str]] = MappingProxyType(
    # ELF's e_machine to what uname calls it.
    {62: "x86_64", 183: "aarch64", 40: "armv7l", 3: "i686", 243: "riscv64"}
)
_ELF_MACHINE: Final = 18


def programs_for(system: str, own: Payload, *, folder: Path | None = None) -> Payload:
    """Return the programs for a host by its ``uname -sm``: ``own``, or those in ``folder``.

    Without a folder it is that of ``FOLDER_VARIABLE``, or of this package.

    Raises ``LabError``, one line with what to do, if there are none.
    """
    folder = folder or Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)
    name, _, machine = system.partition(" ")
    if name == "Linux":
        if machine == architecture(own.programs[AGENT].read_bytes()):
            return own
        for one in _RUNS.get(machine, (machine,)):
            programs = {program: folder / one / program for program in (AGENT, ENGINE)}
            if one in BOARDS and all(path.is_file() for path in programs.values()):
                return Payload(programs)
    words = f"the host is {system}, and there is no agent and engine for it here"
    boards = [BOARDS[one] for one in _RUNS.get(machine, (machine,)) if one in BOARDS]
    if name == "Linux" and boards:
        words += f" (run: scripts/engines {boards[0]})"
    raise LabError(words)


def architecture(program: bytes) -> str:
    """Return for which architecture a program is, as ``uname -m`` calls it."""
    number = int.from_bytes(program[_ELF_MACHINE : _ELF_MACHINE + 2], "little")
    if not program.startswith(b"\x7fELF") or number not in _MACHINES:
        raise LabError("tunnelmark-agent is not a known Linux program (run: make setup)")
    return _MACHINES[number]
