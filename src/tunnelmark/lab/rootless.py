"""Without root: the same command again inside a user namespace of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tunnelmark.lab.placement import Wanted
from tunnelmark.lab.supervise import supervise
from tunnelmark.model.errors import LabError

_INSIDE = "TUNNELMARK_INSIDE_USER_NAMESPACE"
_UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"),
    *("--kill-child", "--mount-proc", "--propagation", "private"),
)
# A /run of its own lets `ip netns add` work; the words behind are the command, untouched.
_PREPARE = 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/netns && exec "$@"'


def stand(wanted: Wanted) -> None:
    """Run the same command again where labs of ``wanted`` stand, unless this process is there.

    As root, or where a machine is enough, that is here. Raises ``LabError`` with the remedy where
    nothing can stand.
    """
    # A machine needs no privilege; what stands on this computer does, if it can be had.
    here = wanted in {"local", "endpoints"}
    if here or (wanted == "auto" and (os.geteuid() == 0 or cannot_run_rootless() is None)):
        ensure_privileges()


def inside_user_namespace() -> bool:
    """Say whether this process is root only in a user namespace that ``stand`` made."""
    return _INSIDE in os.environ


def ensure_privileges() -> None:
    """Return if this process may make namespaces; else run the same command where it may.

    That ends this process with its exit status (``SystemExit``). Raises ``LabError`` with a remedy
    where user namespaces are not allowed either.
    """
    if os.geteuid() == 0:
        return
    if os.environ.get(_INSIDE):
        raise LabError("the user namespace gave no root inside; run as root")
    if reason := cannot_run_rootless():
        raise LabError(f"needs root or user namespaces: {reason}; run it with sudo")
    # The ledger is named after the real user: inside, everyone is root.
    runtime = str(Path(tempfile.gettempdir()) / f"tunnelmark-{os.getuid()}")
    environment = {"TUNNELMARK_RUNTIME": runtime, **os.environ, _INSIDE: "1"}
    argv = [*_UNSHARE, "sh", "-c", _PREPARE, "prepare", sys.executable, "-m", "tunnelmark.cli"]
    sys.stdout.flush()
    raise SystemExit(supervise([*argv, *sys.argv[1:]], environment))


def cannot_run_rootless() -> str | None:
    """Return why this user cannot make the namespaces that a lab needs, or None."""
    try:
        done = subprocess.run(
            [*_UNSHARE, "sh", "-c", _PREPARE, "prepare", "ip", "netns", "add", "tmtrial"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"unshare ended with status {done.returncode}"
