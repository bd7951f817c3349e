"""Our own programs, put into every machine beside the image."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tunnelmark.engine.binary import find_engine
from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import cpio

AGENT: Final = "tunnelmark-agent"
ENGINE: Final = "tunnelmark-engine"
PROGRAMS_DIR: Final = PurePosixPath("/usr/local/bin")
"""Where they stand inside a machine; on the PATH of every program there."""


@dataclass(frozen=True)
class Payload:
    """Programs by name inside the machine; ``tunnelmark-agent`` is always among them."""

    programs: Mapping[str, Path]

    def archive(self) -> bytes:
        """Return what is put behind the image's first file system."""
        members: dict[str, cpio.Member] = {}
        for name, file in self.programs.items():
            try:
                members[f"payload/{name}"] = cpio.Member(file.read_bytes(), 0o755)
            except OSError as error:
                raise LabError(f"{file}: {error.strerror}") from error
        return cpio.archive(members)


def installed() -> Payload:
    """Return the engine that this package uses, and the agent that was built with it."""
    engine = Path(find_engine())
    return Payload({AGENT: agent_beside(engine), ENGINE: engine})


def agent_beside(engine: Path) -> Path:
    """Return the agent: both are programs of one crate and stand side by side, wherever that is."""
    beside = engine.with_name(AGENT)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(AGENT)
    if found is None:
        raise LabError(f"{beside} is missing (run: make setup)")
    return Path(found)
