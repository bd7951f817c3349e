"""What openconnect writes and occtl reports about the session, as the two ends see it. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.daemon import last_complaint

CIPHERS: Final = ("AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305")
"""As GnuTLS writes them."""
SCRIPT: Final = b"""\
# openconnect(8) runs this when the server has given an address.
echo "tunnelmark: $reason: address ${INTERNAL_IP4_ADDRESS:-$INTERNAL_IP6_NETMASK} MTU\
 $INTERNAL_IP4_MTU"
"""
"""Writes what the client was given into its log, without what else it would write if verbose:
the cookie of the session."""

_MOST_OUTPUT_BYTES: Final = 1 << 20
# Version, how keys were agreed on, cipher. occtl cuts it at 63 characters, with the last bracket.
_SUITE: Final = re.compile(r"\((D?TLS[\d.]{3})\)-(?:\([\w-]{1,40}\)-){1,3}\(([\w-]{4,40})(\)?)")
_TLS: Final = re.compile(r"^Connected to HTTPS on \S+ with ciphersuite (\S{1,200})$", re.MULTILINE)
_DTLS: Final = re.compile(
    r"^Established DTLS connection \(using \w{1,20}\)\. Ciphersuite (\S{1,200})\.$", re.MULTILINE
)
_GIVEN: Final = re.compile(
    r"^tunnelmark: connect: address ([0-9a-f.:]{2,50})(?:/\d{1,3})? MTU (\d{1,5})$", re.MULTILINE
)
_NO_DTLS: Final = re.compile(
    r"^(?:DTLS handshake (?:failed|timed out)|Failed to .*DTLS|Set up UDP failed).{0,200}",
    re.MULTILINE,
)
_PACKED: Final = re.compile(r"^DTLS connection compression using (\w{1,20})\.$", re.MULTILINE)
_NOISE: Final = re.compile(
    r"^Failed to (?:complete authentication|open HTTPS connection|obtain WebVPN cookie)"
    r"|^SSL connection failure: Error in the certificate|^Failed to write incoming packet"
    r"|^Server certificate verify failed: signer not found|^Got HTTP response|User-agent|vhost:"
    r"|user disconnected|worker terminated"
)

Suite = tuple[str, str]
"""Version and cipher: (``DTLS1.2``, ``AES-256-GCM``)."""


@dataclass(frozen=True)
class Session:
    """One session as one end reports it; None: it does not."""

    tls: Suite | None
    dtls: Suite | None
    mtu_bytes: int | None
    compression: str = "none"
    """Of DTLS: ``lz4``. Of packets inside TLS the server reports none."""

    def __str__(self) -> str:
        """Return it for a message."""
        suites = (" ".join(suite) for suite in (self.tls, self.dtls) if suite)
        packed = "no compression" if self.compression == "none" else self.compression
        return f"{' and '.join(suites) or 'no TLS'}, MTU {self.mtu_bytes}, {packed}"


@dataclass(frozen=True)
class User:
    """A client as the server reports it; None: it does not say."""

    name: str | None
    device: str | None
    """The server's interface for it."""
    session: Session


def read_client(log: str) -> Session:
    """Return what openconnect and its script wrote of the session that is up."""
    tls, dtls = (pattern.findall(log)[-1:] for pattern in (_TLS, _DTLS))
    given = _GIVEN.search(log)
    packed = _PACKED.findall(log)
    return Session(
        _suite(tls),
        _suite(dtls),
        int(given.group(2)) if given else None,
        packed[-1].lower() if packed else "none",
    )


def read_address(log: str) -> IPv4Address | IPv6Address | None:
    """Return the address that openconnect was given, None before it is connected."""
    match = _GIVEN.search(log)
    try:
        return ip_address(match.group(1)) if match else None
    except ValueError:
        return None


def read_no_dtls(log: str) -> str | None:
    """Return why openconnect continues without DTLS, None if it does not say so."""
    match = _NO_DTLS.search(log)
    return match.group(0) if match else None


def read_users(output: bytes, wanted: int = 1) -> tuple[User, ...]:
    """Return what ``occtl -j show users`` reports of its clients.

    Raises ``TunnelError`` if they are more or fewer than are wanted, or it is not JSON.
    """
    try:
        users = json.loads(output[:_MOST_OUTPUT_BYTES])
    except (ValueError, RecursionError) as error:
        raise TunnelError(f"occtl wrote no JSON: {error}") from error
    listed = isinstance(users, list) and all(isinstance(user, dict) for user in users)
    if not listed or len(users) != wanted:
        shown = len(users) if listed else "no list of"
        raise TunnelError(f"occtl shows {shown} users, wanted {wanted}")
    return tuple(_user(user) for user in users)


def is_ready(log: str) -> bool:
    """Say whether the server takes clients."""
    return "sec-mod initialized" in log and "main: initialized" in log


def last_words(log: str) -> str:
    """Return the line of a log of either program that says best what went wrong."""
    return last_complaint(log, noise=_NOISE)


def _user(user: Mapping[str, object]) -> User:
    name, device, tls, dtls, mtu, packed = (
        value if isinstance(value := user.get(key), str) else None
        for key in (
            *("Username", "Device", "TLS ciphersuite", "DTLS cipher", "MTU"),
            "DTLS compression",
        )
    )
    return User(
        name,
        device,
        Session(
            _suite([tls] if tls is not None else []),
            _suite([dtls] if dtls is not None else []),
            int(mtu) if mtu is not None and re.fullmatch(r"[0-9]{1,5}", mtu) else None,
            # As it writes it in HTTP: oc-lz4.
            packed[:40].removeprefix("oc-") if packed else "none",
        ),
    )


def _suite(texts: Sequence[str]) -> Suite | None:
    match = _SUITE.fullmatch(texts[0]) if texts else None
    if match is None:
        return None
    version, cipher, closed = match.groups()
    if not closed:
        known = [name for name in CIPHERS if name.startswith(cipher)]
        cipher = known[0] if len(known) == 1 else cipher
    return version, cipher
