"""Where ``tunnelmark-engine`` is."""

import os
import shutil
import sys
from pathlib import Path

from tunnelmark.model.errors import LabError

NAME = "tunnelmark-engine"


def find_engine() -> str:
    """Return the path of the engine: ``TUNNELMARK_ENGINE``, beside Python, then on the PATH."""
    if override := os.environ.get("TUNNELMARK_ENGINE"):
        if not os.access(override, os.X_OK):
            raise LabError(f"TUNNELMARK_ENGINE is {override}, which is no program that can be run")
        return str(Path(override).resolve())
    beside = Path(sys.executable).parent / NAME
    if os.access(beside, os.X_OK):
        return str(beside)
    if found := shutil.which(NAME):
        return found
    raise LabError(f"{NAME} is not beside {sys.executable} nor on the PATH (run: make setup)")
