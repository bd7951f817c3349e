"""maturin as the build backend, and the one thing that its sdist loses.

A wheel with programs has no entry points in maturin, so the command is a script of the wheel. In an
sdist of maturin no file can be executed, and pip installs a script with the mode that it has in the
wheel.
"""

from pathlib import Path
from typing import Any

import maturin
from maturin import *  # noqa: F403 - every other hook of PEP 517 and PEP 660 is its own

_SCRIPTS = Path("wheel.data/scripts")  # hooks run in the folder of pyproject.toml
_EXECUTABLE = 0o755


def build_wheel(*arguments: Any, **named: Any) -> str:
    """Build a wheel in which the command can be executed."""
    for script in _SCRIPTS.iterdir():
        script.chmod(_EXECUTABLE)
    return str(maturin.build_wheel(*arguments, **named))
