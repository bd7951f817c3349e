"""Where ``tunnelmark-engine`` is, and what it says of itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tunnelmark.engine.config import PROTOCOL
from tunnelmark.model.errors import LabError

NAME: Final = "tunnelmark-engine"
_VERSION_LIMIT_S: Final = 10.0


def find_engine(*, checkout: Path | None = None) -> str:
    """Return the path of the engine.

    Looked for in this order: the variable ``TUNNELMARK_ENGINE``, beside Python, on the PATH, and
    in a checkout (at ``checkout``, by default the one that this file is in) the newest build.
    Raises ``LabError`` with the command that installs it.
    """
    if override := os.environ.get("TUNNELMARK_ENGINE"):
        if not _is_program(Path(override)):
            raise LabError(f"TUNNELMARK_ENGINE is {override}, which is not an executable program")
        return str(Path(override).resolve())
    beside = Path(sys.executable).parent / NAME
    if _is_program(beside):
        return str(beside)
    if found := shutil.which(NAME):
        return found
    if built := _built_here(checkout or Path(__file__).resolve().parents[3]):
        return str(built)
    raise LabError(f"{NAME} is neither beside {sys.executable} nor on the PATH (run: make setup)")


def engine_version(engine: str) -> str:
    """Return the version of the engine; ``LabError`` if it speaks another protocol or none."""
    try:
        done = subprocess.run(
            [engine, "version"], capture_output=True, timeout=_VERSION_LIMIT_S, check=False
        )
        event = json.loads(done.stdout)
        version, protocol = event["version"], event["protocol"]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{engine} cannot be run: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{engine} version wrote no version, so it is not {NAME}") from error
    if not isinstance(version, str) or protocol != PROTOCOL:
        raise LabError(f"{engine} speaks protocol {protocol}, must be {PROTOCOL} (run: make setup)")
    return version


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _built_here(root: Path) -> Path | None:
    if not (root / "crates" / "engine" / "Cargo.toml").is_file():
        return None
    # cargo puts it below the target triple where one is named.
    places = [root / "target" / "release" / NAME, *root.glob(f"target/*/release/{NAME}")]
    built = [place for place in places if _is_program(place)]
    return max(built, key=lambda place: place.stat().st_mtime_ns, default=None)
