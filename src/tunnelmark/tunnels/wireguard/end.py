"""One end of WireGuard: its keys, its daemon, and what wg(8) says of it."""

import base64
import re
from dataclasses import dataclass
from typing import Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tunnelmark.model.host import Process
from tunnelmark.model.tunnel import Endpoint, Side

Implementation = Literal["kernel", "wireguard-go", "boringtun"]

PROGRAM: Final[dict[Implementation, str]] = {
    "wireguard-go": "wireguard-go",
    "boringtun": "boringtun-cli",
}
LOG_LINES: Final = 200
"""As much of a daemon's log is looked at for its last words."""


@dataclass(frozen=True)
class Keys:
    """A pair of keys."""

    private: str
    public: str


@dataclass(frozen=True)
class End:
    """One end of one tunnel."""

    side: Side
    number: int
    endpoint: Endpoint
    interface: str
    implementation: Implementation
    process: Process | None
    keys: Keys

    @property
    def place(self) -> str:
        """Name of this end, for messages."""
        return f"wireguard {self.side} of tunnel {self.number} on {self.endpoint.host.name}"

    def last_words(self) -> str:
        """Return what the daemon says itself; the kernel says nothing."""
        if self.process is None:
            return "none, it is the kernel"
        return last_words_of(self.process.log_tail(LOG_LINES))

    def wg(self, *arguments: str, stdin: bytes | None = None) -> list[str] | str:
        """Run wg where the control socket of the daemon is; return its lines, or its last words."""
        argv = ["wg", *arguments]
        if self.process is not None:
            # The daemon has a private copy of the socket directory: enter its mount namespace.
            argv = ["nsenter", f"--mount=/proc/{self.process.host_pid}/ns/mnt", *argv]
        done = self.endpoint.host.run(argv, stdin=stdin, check=False)
        return done.text().splitlines() if done.returncode == 0 else done.last_words()


def new_keys() -> Keys:
    """Return a new pair of keys (RFC 7748), as wg(8) writes them."""
    private = X25519PrivateKey.generate()
    raw = private.private_bytes(
        serialization.Encoding.Raw,
        serialization.PrivateFormat.Raw,
        serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    return Keys(base64.b64encode(raw).decode(), base64.b64encode(public).decode())


def daemon_words(implementation: Implementation, interface: str) -> list[str]:
    """Return the words that start it."""
    if implementation == "boringtun":
        # Giving up root would take the right to open the TUN device in a user namespace with it.
        return ["boringtun-cli", "--foreground", "--disable-drop-privileges", interface]
    return ["wireguard-go", "--foreground", interface]


def version_of(end: End) -> str:
    """Return what its program, or its kernel, calls itself."""
    host = end.endpoint.host
    if end.implementation == "kernel":
        return f"WireGuard of {host.run(['uname', '-sr']).text().strip()}"
    done = host.run([PROGRAM[end.implementation], "--version"], check=False)
    lines = done.text().splitlines()
    return lines[0].strip() if lines else f"{end.implementation} of unknown version"


def handshake_s(line: str) -> int:
    """Return the time of the last handshake with a peer, 0 for none."""
    match = re.fullmatch(r"[A-Za-z0-9+/=]{44}\t([0-9]{1,12})", line)
    return int(match.group(1)) if match else 0


def last_words_of(log: str) -> str:
    """Return the line of a daemon's log that says best what went wrong."""
    # wireguard-go draws a box around a recommendation at every start.
    # boringtun colours its log and puts the place in its source on a line of its own.
    lines = [_COLOUR.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line and line[0] not in "┌│└" and not line.startswith("at ")]
    for line in reversed(lines):
        if re.search(
            r"error|fail|invalid|did not complete|cannot|panic|denied", line, re.IGNORECASE
        ):
            return line
    return lines[-1] if lines else "nothing in its log"


TWO_KEYS: Final = re.compile(r"[A-Za-z0-9+/=]{44}\t[A-Za-z0-9+/=]{44}")
"""A peer's key, and behind a tab the secret, as wg(8) shows them."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
