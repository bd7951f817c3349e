"""Programs of this machine that the builder needs, and the package that brings each."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tunnelmark.model.errors import LabError

PACKAGES: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "sqfstar": "squashfs-tools",
    "depmod": "kmod",
    "apt-get": "apt",
    "apt-cache": "apt",
    "apt-config": "apt",
    "dpkg-deb": "dpkg",
    "zstd": "zstd",
}
"""Program to Debian package."""

_PATH: Final = ":".join(
    # An ordinary user's PATH lacks the sbin directories, where depmod lives.
    (os.environ.get("PATH", "/usr/bin:/bin"), "/usr/local/sbin", "/usr/sbin", "/sbin")
)


def find(program: str) -> str | None:
    """Return the path of a program, the system directories included, or None."""
    return shutil.which(program, path=_PATH)


def need(program: str) -> str:
    """Return the path of a program; ``LabError`` names the one package to install."""
    path = find(program)
    if path is None:
        package = PACKAGES[program]
        raise LabError(f"{program} is not installed (apt-get install {package})")
    return path


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
    timeout_s: float = 600.0,
) -> str:
    """Run a program of ``PACKAGES`` to its end and return its output.

    Raises ``LabError`` with its last words if it fails or takes longer than the limit.
    """
    try:
        done = subprocess.run(
            [need(argv[0]), *argv[1:]],
            cwd=cwd,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]}: not done after {timeout_s:g} s") from None
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise LabError(f"{argv[0]}: {words[-1] if words else f'exit status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
