"""Our own programs, put into every machine beside the image."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

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
    """Return the programs that were installed with this package."""
    return Payload({name: _find(name) for name in (AGENT, ENGINE)})


def _find(program: str) -> Path:
    """Look beside this Python's own programs first: a wheel puts them there."""
    scripts = sysconfig.get_path("scripts")
    found = shutil.which(program, path=f"{scripts}:{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise LabError(f"{program} is not installed in {scripts} (make setup, or pip install .)")
    return Path(found)
