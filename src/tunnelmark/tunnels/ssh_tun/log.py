"""What ssh and sshd say in their logs (LogLevel DEBUG1), and which key exchanges an ssh has."""

import re
from typing import Final

from tunnelmark.model.host import Host
from tunnelmark.tunnels.daemon import last_complaint

WAYS: Final = ("client->server", "server->client")


def read_agreed(log: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return every (cipher, MAC, compression) that was agreed on, by direction, in order."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for way, cipher, mac, packed in _KEX.findall(log):
        found.setdefault(way, []).append((cipher, mac, packed))
    return found


def read_exchange(log: str) -> str | None:
    """Return how keys were agreed on."""
    match = _KEX_ALGORITHM.search(log)
    return match.group(1) if match else None


def read_versions(log: str) -> list[str]:
    """Return the versions of all programs that wrote it: ``OpenSSH 9.2p1``."""
    return [version.replace("_", " ") for version in _VERSION.findall(log)]


def logged_in(connections: int, log: str) -> bool:
    """Say whether so many clients have logged in, by the log of one of them or of the server."""
    return "Authenticated to " in log or log.count("Accepted publickey for") >= connections


def has_device(connections: int, log: str) -> bool:
    """Say likewise whether each has its device at both ends."""
    # The client has its own before the server has agreed to another.
    if "Authenticated to " in log:
        return "tunnel forward established" in log
    return log.count("Tunnel forwarding using interface") >= connections


def last_words(log: str) -> str:
    """Return the line that says best what went wrong."""
    return last_complaint(log, noise=_NOISE)


def no_exchange(host: Host, wanted: str) -> str | None:
    """Return that the host's ssh does not list a key exchange, with the hybrid ones it has."""
    listed = host.run(["ssh", "-Q", "kex"], check=False).text().split()
    if wanted in listed:
        return None
    hybrid = [name for name in listed if name.startswith(("mlkem", "sntrup"))]
    return f"ssh has no key exchange {wanted} (of hybrid ones it has {', '.join(hybrid) or 'none'})"


_KEX: Final = re.compile(
    r"kex: (client->server|server->client) cipher: (\S{1,60}) MAC: (\S{1,60}) "
    r"compression: (\S{1,30})"
)
_KEX_ALGORITHM: Final = re.compile(r"kex: algorithm: (\S{1,60})")
_VERSION: Final = re.compile(r"Local version string SSH-2\.0-(OpenSSH_[\w.]{1,20})")
_NOISE: Final = re.compile(
    r"Could not load host certificate|debug1: (?:SELinux|Will attempt|Reading|identity file"
    r"|do_cleanup|audit_event)"
    r"|no such identity|Unable to load|fd \d+ clearing|Warning: Permanently added"
    r"|agent_fd|pledge|type -1$|error while closing"
)
