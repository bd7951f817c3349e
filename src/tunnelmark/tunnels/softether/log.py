"""What vpncmd and SoftEther's log files say. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from tunnelmark.tunnels.daemon import last_complaint

SUITE: Final = "TLS_AES_256_GCM_SHA384"
"""What OpenSSL takes first of TLS 1.3 (RFC 8446 appendix B.4)."""

_ROW: Final = re.compile(r"^([\w /()-]{1,80}),(.{0,200})$", re.MULTILINE)
_SUITE: Final = re.compile(r"Enabled \(Algorithm: ([\w-]{1,60})\)")
_ERROR: Final = re.compile(
    r"^Error occurred\. \(Error code: (\d{1,6})\)\r?\n(.{0,300})", re.MULTILINE
)
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]{8,15} ", re.MULTILINE)
_SESSION: Final = re.compile(r"[A-Za-z0-9-]{1,60}")
_VERSION: Final = re.compile(r"^Version,Version (\d{1,3}\.\d{1,3}) Build (\d{1,6})", re.MULTILINE)
_SSTP_SESSION: Final = re.compile(r"^(SID-[A-Z0-9-]{1,60}\[SSTP\]-\d{1,9}),", re.MULTILINE)
_LOADED: Final = "The configuration file has been loaded."
_OWN_SETTINGS: Final = "Attempting to start using initial settings."
_NOISE: Final = re.compile(r"Monitoring the directory|file does not exist|is terminating|^-+$")


@dataclass(frozen=True)
class Status:
    """A connection as one end reports it; None: it does not."""

    session: str | None
    suite: str | None
    compressed: bool | None
    udp: bool | None
    """Whether packets go outside the stream."""
    version: str


def read_status(output: str) -> Status:
    """Return what ``AccountStatusGet`` or ``SessionGet`` reports, as CSV."""
    rows = {name: value.strip().strip('"') for name, value in _ROW.findall(output)}
    suite = _SUITE.search(rows.get("Encryption", ""))
    session = rows.get("Session Name", "")
    version = " ".join(rows[name] for name in ("Server Version", "Server Build") if name in rows)
    return Status(
        session=session if _SESSION.fullmatch(session) else None,
        suite=suite.group(1) if suite else None,
        compressed=_yes(rows.get("Use of Compression")),
        udp=_yes(rows.get("UDP Acceleration is Active")),
        version=version[:40] or "of unknown version",
    )


def server_version(output: str) -> str:
    """Return what ``ServerInfoGet`` says, as CSV: ``5.02 Build 5188``."""
    match = _VERSION.search(output)
    return f"{match.group(1)} Build {match.group(2)}" if match else "of unknown version"


def answers_sstp(version: str) -> bool:
    """Say whether a server of this version answers calls by SSTP, as far as is known.

    Since July 2020 Cedar/Proto.c of SoftEther found no protocol by its name; corrected in December
    2020. Debian and Ubuntu have the state of August 2020.
    """
    return version != "5.01 Build 9674"


def sstp_session(output: str) -> str | None:
    """Return the first session of SSTP in what ``SessionList`` reports, as CSV; None without."""
    match = _SSTP_SESSION.search(output)
    return match.group(1) if match else None


def refusal(output: str) -> str | None:
    """Return the first error in what vpncmd wrote, None without one.

    Nothing else of it is shown: it repeats the commands, and passwords are among them.
    """
    match = _ERROR.search(output)
    return f"{match.group(2).strip()} (error code {match.group(1)})" if match else None


def loaded(log: str) -> bool | None:
    """Return whether a server read its configuration, None as long as it has not said so."""
    if _OWN_SETTINGS in log:
        return False
    return True if _LOADED in log else None


def last_words(log: str) -> str:
    """Return the line of the logs that says best what went wrong, without its time."""
    return last_complaint(_TIME.sub("", log), noise=_NOISE)


def _yes(text: str | None) -> bool | None:
    if text is None:
        return None
    return None if not text.startswith(("Yes", "No")) else text.startswith("Yes")
