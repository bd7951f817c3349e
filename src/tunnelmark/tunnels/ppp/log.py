"""What pppd's own log says: pure functions of untrusted text."""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PppReport:
    """What one pppd says it agreed on; None where it has said nothing yet."""

    interface: str | None = None
    authentication: str | None = None
    """``MS-CHAPv2`` or what else was asked for, once it succeeded."""
    mppe: str = "none"
    """``128-stateless``, ``128-stateful``, ``40``, ``40-stateful``, ``none``."""
    compression: str = "none"
    """``deflate``, ``bsd`` or ``none``; anything else in pppd's words."""
    receive_bytes: int | None = None
    """MRU that the peer acknowledged."""
    send_bytes: int | None = None
    """MRU of the peer."""
    sends_without_address: bool = False
    """Address and control are left out of what this end sends (RFC 1661 section 6.6)."""
    sends_short_protocol: bool = False
    """The protocol is one byte where it can be (RFC 1661 section 6.5)."""
    local_ipv4: str | None = None
    remote_ipv4: str | None = None
    local_ipv6: str | None = None
    """Link-local address."""
    warnings: tuple[str, ...] = ()

    @property
    def up(self) -> bool:
        """Whether IPv4 is agreed on."""
        return self.local_ipv4 is not None and self.remote_ipv4 is not None

    @property
    def up_ipv6(self) -> bool:
        """Whether IPv6 is agreed on."""
        return self.local_ipv6 is not None


def read_log(text: str) -> PppReport:
    """Return what a log of pppd with ``debug`` says; the last word on each matter counts.

    Never fails, whatever the text.
    """
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    found: dict[str, str] = {}
    asked, authentication = None, None
    mppe, compression = "none", "none"
    warnings: list[str] = []
    for raw in text[-_MOST_CHARACTERS:].splitlines():
        line = raw.strip()
        if match := _LCP_ACK.fullmatch(line):
            options = _options(match["options"])
            if match["way"] == "sent":
                theirs = options
            else:
                ours = options
            asked = (ours if "auth" in ours else theirs).get("auth", asked)
        elif _CHAP_SUCCESS.match(line):
            authentication = _authentication(asked)
        elif match := _ENABLED.fullmatch(line):
            mppe, compression = _enabled(match["what"])
        elif line in _COMPRESSION_OFF:
            mppe = compression = "none"
        elif match := _SAID.fullmatch(line):
            found[match["what"]] = match["value"]
        elif _WARNING.search(line):
            warnings.append(line[:_MOST_WARNING_CHARACTERS])
    return PppReport(
        interface=found.get("Using interface"),
        authentication=authentication,
        mppe=mppe,
        compression=compression,
        receive_bytes=_mru(ours),
        send_bytes=_mru(theirs),
        # What the peer asked for and this end acknowledged is what this end sends.
        sends_without_address="accomp" in theirs,
        sends_short_protocol="pcomp" in theirs,
        local_ipv4=found.get("local  IP address"),
        remote_ipv4=found.get("remote IP address"),
        local_ipv6=found.get("local  LL address"),
        warnings=tuple(warnings[:_MOST_WARNINGS]),
    )


def last_words(text: str) -> str:
    """Return the line of a log that says best why pppd gave up.

    Where none does, that is the reason that it gave its peer, or was given.
    """
    lines = [line.strip() for line in text[-_MOST_CHARACTERS:].splitlines() if line.strip()]
    given = [line for line in lines if _GIVEN_REASON.search(line)]
    own = [*given, *(line for line in lines if not line.startswith(("sent [", "rcvd [")))]
    for reason in _REASONS:
        for line in reversed(own):
            if reason.search(line):
                return line[:_MOST_WARNING_CHARACTERS]
    return (own or lines or ["nothing in its log"])[-1][:_MOST_WARNING_CHARACTERS]


def is_refusal(words: str) -> bool:
    """Say whether a pppd's last words are that it never will: security, authentication, kernel."""
    return any(reason.search(words) for reason in _REASONS[:_REFUSALS])


_MOST_CHARACTERS: Final = 4 << 20
_MOST_WARNINGS: Final = 5
_MOST_WARNING_CHARACTERS: Final = 300
_DEFAULT_MRU: Final = 1500

_LCP_ACK: Final = re.compile(
    r"(?P<way>sent|rcvd) \[LCP ConfAck id=0x[0-9a-f]+(?P<options>[^\]]*)\]"
)
_OPTION: Final = re.compile(r"<([a-z]+)(?: ([^<>]*))?>")
_CHAP_SUCCESS: Final = re.compile(r"(?:sent|rcvd) \[CHAP Success ")
_ENABLED: Final = re.compile(r"(?P<what>.{1,100}) compression enabled")
_MPPE: Final = re.compile(r"MPPE (?P<bits>[0-9]{1,3})-bit (?P<state>state(?:less|ful))")
_METHOD: Final = re.compile(r"(?P<name>Deflate|BSD-Compress) \([^)]*\)(?P<way> receive| transmit)?")
_COMPRESSION_OFF: Final = frozenset(
    {"Compression disabled by peer.", "Lost compression sync: disabling compression"}
)
_SAID: Final = re.compile(
    r"(?P<what>Using interface|local  IP address|remote IP address|local  LL address)"
    r" (?P<value>[A-Za-z0-9_.:]{1,64})"
)
_GIVEN_REASON: Final = re.compile(r'LCP TermReq id=0x[0-9a-f]+ "(?!User request")')
"""Of RFC 1661 section 5.5; a user's request is that of whoever ends pppd by a signal."""
_WARNING: Final = re.compile(r"lost compression sync|warning|not supported", re.IGNORECASE)
# The cause first, then what follows from it.
_REASONS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"MPPE (required|.*failed|.*disabled)|refusing MPPE",
        r"authentication failed|failed CHAP|E=691|no auth is possible|peer refused to auth",
        r"kernel (lacks|does not support|doesn't support)|support ppp|/dev/ppp",
        r"unrecognized option|in file|could(n't| not)|can't|cannot|unable|failed|error",
        r"terminated by peer|timeout|no response|refused|not authorized",
        r"hangup",
        _GIVEN_REASON.pattern,
        r"terminating",
        r"terminat",
    )
)
_REFUSALS: Final = 3
"""So many of them are there again in the next attempt."""


def _options(text: str) -> dict[str, str]:
    return {name: value or "" for name, value in _OPTION.findall(text)}


def _mru(options: dict[str, str]) -> int | None:
    if not options:
        return None
    value = options.get("mru", str(_DEFAULT_MRU))
    return int(value) if re.fullmatch(r"[0-9]{1,5}", value) else None


def _authentication(asked: str | None) -> str:
    return {"chap MS-v2": "MS-CHAPv2", "chap MS": "MS-CHAP", "chap MD5": "CHAP-MD5"}.get(
        asked or "", asked or "unknown"
    )


def _enabled(what: str) -> tuple[str, str]:
    """Return encryption and compression that a line names; what is unknown stays as it is."""
    if match := _MPPE.fullmatch(what):
        stateless_40 = match["bits"] == "40" and match["state"] == "stateless"
        return "40" if stateless_40 else f"{match['bits']}-{match['state']}", "none"
    if match := _METHOD.fullmatch(what):
        name = "deflate" if match["name"] == "Deflate" else "bsd"
        return "none", f"{name} in one direction" if match["way"] else name
    # Two methods, one for each direction, or MPPE one way only: nothing a study can ask for.
    return ("mixed" if "MPPE" in what else "none"), what
