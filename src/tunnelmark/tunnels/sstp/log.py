"""What the two programs of SSTP say: pure functions of untrusted text."""

import re
from dataclasses import dataclass
from typing import Final

from tunnelmark.tunnels.ppp import log as ppp_log


@dataclass(frozen=True)
class ServerReport:
    """What the server says of one call; None where it has said nothing yet."""

    version: str | None = None
    """``TLSv1.3``."""
    cipher: str | None = None
    bound: bool = False
    """The client's crypto binding names this server's nonce and certificate."""


def read_server_log(text: str, number: int) -> ServerReport:
    """Return what the server's log says of a call; never fails, whatever the text."""
    version = cipher = None
    bound = False
    for line in text.splitlines():
        head, _, said = line.partition(": ")
        if head != f"call {number}":
            continue
        if match := _TLS.fullmatch(said):
            version, cipher = match.groups()
        bound |= said == _BOUND
    return ServerReport(version, cipher, bound)


def version(text: str) -> str:
    """Return the number in what ``sstpc --version`` wrote."""
    match = re.search(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}", text)
    return match.group() if match else "of unknown version"


def last_words(pppd: str, own: str, number: int | None) -> str:
    """Return the line that says best what went wrong: of sstpc or the server, else of pppd.

    ``own`` is the log of the process, which on the server is that of all calls: of other calls than
    ``number`` nothing counts.
    """
    for line in reversed(own.splitlines()):
        match = _CALL.match(line)
        if match and number is not None and int(match["number"]) != number:
            continue
        if _TROUBLE.search(line):
            return line.strip()[:_MOST_CHARACTERS]
    return ppp_log.last_words(pppd or own)


_MOST_CHARACTERS: Final = 300
_TLS: Final = re.compile(r"(TLSv[0-9.]{1,4}) ([A-Za-z0-9_-]{1,80})")
_BOUND: Final = "crypto binding to nonce and certificate agreed"
_CALL: Final = re.compile(r"call (?P<number>[0-9]{1,3})[: ]")
_TROUBLE: Final = re.compile(
    r"error|fail|could not|couldn't|verif|refus|man in the middle|ended the call|out of turn"
    r"|which is not",
    re.IGNORECASE,
)
