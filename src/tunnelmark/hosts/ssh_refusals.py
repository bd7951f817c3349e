"""Why a host over SSH cannot serve, in one line each, with what to do."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Refusal(IntEnum):
    """Exit status by which the host's shell says what is in the way (ssh.py)."""

    NOT_ROOT = 91
    PROGRAM = 92
    DIGEST = 93
    DIRECTORY = 94
    NOT_STARTED = 126
    """By the shell itself: a file is there and cannot be executed (POSIX, 2.8.2)."""
    SSH = 255
    """By ssh: its own failure, ssh(1)."""


# What OpenSSH writes; its exit status is the same for all of it.
_BY_SSH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "REMOTE HOST IDENTIFICATION HAS CHANGED": "the host's key is not the one that is known: "
        "it was reinstalled, or another host answers in its place (ssh-keygen -R, once that is "
        "clear)",
        "Host key verification failed": "the host's key is not known yet (log in once with ssh)",
        "Permission denied": "the host accepts none of the keys (ssh-copy-id; no password is asked "
        "for in a run)",
        "Connection refused": "the ssh port is closed: nothing listens there, or a firewall "
        "refuses",
        "No route to host": "there is no route to the host, or it is switched off",
        "Network is unreachable": "there is no route to the host's network from here",
        "timed out": "the host does not answer: it is switched off, or a firewall drops packets",
        "Could not resolve hostname": "the name is not known to the resolver",
        "Too many authentication failures": "too many keys were tried (set IdentitiesOnly yes)",
    }
)


def refusal(status: int | None, errors: str) -> str:
    """Return why a connection ended, by the exit status of ssh and what was written to errors."""
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    if status is None:
        return "the agent was killed, though ssh is still connected"
    if status == Refusal.SSH:
        found = (words for sign, words in _BY_SSH.items() if sign in errors)
        return next(found, last or "ssh failed without a message")
    if status in _BY_SHELL:
        return _BY_SHELL[Refusal(status)].format(last=last, package=_PACKAGES.get(last, last))
    return f"the agent ended: {last}" if last else f"the agent ended (status {status})"


_BY_SHELL: Final[Mapping[Refusal, str]] = MappingProxyType(
    {
        Refusal.NOT_ROOT: "is neither root there nor may use sudo without a password, which "
        "network namespaces need (log in as root, or allow it in /etc/sudoers.d)",
        Refusal.PROGRAM: "{last} is missing there (apt-get install {package})",
        Refusal.DIGEST: "the copied file is damaged: the disk there may be full",
        Refusal.DIRECTORY: "cannot create a directory there: {last}",
        Refusal.NOT_STARTED: "cannot run programs in /tmp there: {last}",
    }
)
_PACKAGES: Final[Mapping[str, str]] = MappingProxyType(
    {"unshare": "util-linux", "mount": "mount", "ip": "iproute2", "sha256sum": "coreutils"}
)
