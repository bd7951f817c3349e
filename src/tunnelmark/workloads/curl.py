"""What curl gets and reports: arguments, its account of each transfer, its trace; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tunnelmark.workloads.exchanges import Exchanged

LARGEST_TRACE_BYTES: Final = 64 << 20
CONNECT_LIMIT_S: Final = 20
STALL_LIMIT_S: Final = 30
"""A transfer without a single byte for so long is given up."""
BAD_STATUS: Final = 22
"""curl's exit status when the server answered with an error."""
_DAY_S: Final = 86_400

TlsVersion = Literal["1.2", "1.3"]
# RFC 8446 appendix B.4, and the suites of RFC 5289 and RFC 7905 by OpenSSL's names, for a key on
# an elliptic curve, which ours is.
TLS_CIPHERS: Final[dict[TlsVersion, tuple[str, ...]]] = {
    "1.3": ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    "1.2": (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
}

_Seconds = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]

_REFUSED: Final = re.compile(r"^\S+ \* connect to \S+ port \d+ failed: (.{1,120})$", re.MULTILINE)
_COMPLAINT: Final = re.compile(r"curl: (\(\d+\) .{1,300})")
_TLS: Final = re.compile(r"SSL connection using (TLSv[\d.]{1,4}) / ([\w-]{1,60})")
_EVENT: Final = re.compile(
    r"^(\d\d):(\d\d):(\d\d)\.(\d{6}) \* +(Trying |Connection #\d+ to host \S+ left intact|"
    r"Closing connection)",
    re.MULTILINE,
)


class Transfer(BaseModel):
    """curl's account of one transfer (``--write-out %{json}``), all times from its start in s."""

    model_config = ConfigDict(extra="ignore", strict=True)

    exitcode: _Count
    errormsg: Annotated[str, Field(max_length=1000)] | None
    http_code: _Count
    num_connects: _Count
    size_download: _Count
    size_upload: _Count
    time_connect: _Seconds
    time_appconnect: _Seconds
    time_starttransfer: _Seconds
    time_total: _Seconds
    url: Annotated[str, Field(max_length=300)]

    @property
    def name(self) -> str:
        """Last part of the address: the file."""
        return self.url.rpartition("/")[2]

    @property
    def done(self) -> bool:
        """Whether it came to its end and the server was content."""
        return self.exitcode == 0 and self.http_code in {200, 201, 204}

    @property
    def connect_s(self) -> float | None:
        """Until TCP, and TLS if any, was ready; None where an older connection was used."""
        return (self.time_appconnect or self.time_connect) if self.num_connects else None


@dataclass(frozen=True)
class Tls:
    """What a study asks of TLS."""

    version: TlsVersion
    cipher: str | None

    def arguments(self, certificate: PurePosixPath) -> list[str]:
        """Return the words that make curl insist on it."""
        words = ["--cacert", str(certificate), f"--tlsv{self.version}", "--tls-max", self.version]
        if self.cipher is not None:
            option = "--tls13-ciphers" if self.version == "1.3" else "--ciphers"
            words += [option, self.cipher]
        return words


def arguments(
    *,
    source: str,
    trace: PurePosixPath | None = None,
    rate_bytes_s: int | None = None,
    tls: Sequence[str] = (),
) -> list[str]:
    """Return the words for all transfers; the addresses come in a configuration of their own.

    Without a file for it the trace goes to standard error.
    """
    return [
        # -q first: nothing of a user's settings.
        *("curl", "-q", "--silent", "--show-error", "--fail", "--fail-early", "--noproxy", "*"),
        # With --parallel the meter is shown in spite of --silent, in front of a line of the trace.
        "--no-progress-meter",
        *("--interface", source, "--connect-timeout", str(CONNECT_LIMIT_S)),
        *("--speed-limit", "1", "--speed-time", str(STALL_LIMIT_S)),
        *("--write-out", "%{json}\\n", "--verbose", "--trace-time"),
        *(("--stderr", str(trace)) if trace is not None else ()),
        *(("--limit-rate", str(rate_bytes_s)) if rate_bytes_s is not None else ()),
        *tls,
    ]


def url(scheme: str, address: str, port: int, name: str) -> str:
    """Return the address of a file."""
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}/{name}"


def parse_transfer(line: str) -> Transfer:
    """Return one account; raises ``ValueError`` with the place of what is not as documented."""
    try:
        return Transfer.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise ValueError(f"the account of curl is damaged at {place}: {first['msg']}") from error


def transferred(
    one: Exchanged, address: str, *, downloaded: int = 0, uploaded: int = 0
) -> Transfer:
    """Return curl's account of an exchange that came to its end in virtual time."""

    def since(at_ns: int | None) -> float:
        return 0.0 if at_ns is None else (at_ns - one.began_ns) / 1e9

    return Transfer(
        exitcode=0,
        errormsg=None,
        http_code=201 if uploaded else 200,
        num_connects=int(one.connected_ns is not None),
        size_download=downloaded,
        size_upload=uploaded,
        time_connect=since(one.connected_ns),
        time_appconnect=since(one.opened_ns),
        time_starttransfer=since(one.first_ns),
        time_total=since(one.done_ns),
        url=address,
    )


def complaint(trace: str) -> str | None:
    """Return why curl gave up, with the reason the kernel gave it for a refused connection."""
    said = _COMPLAINT.findall(trace)
    refused = _REFUSED.findall(trace)
    if not said:
        return None
    return f"{said[-1]}: {refused[-1]}" if refused else str(said[-1])


def negotiated(trace: str) -> set[tuple[str, str]]:
    """Return every (version, cipher) that curl says it used."""
    return set(_TLS.findall(trace))


def span_s(trace: str) -> float | None:
    """Return seconds from the first attempt to connect to the end of the last transfer.

    The trace has the time of the day only: midnight is passed once at most.
    """
    times = [
        int(h) * 3600 + int(m) * 60 + int(s) + int(us) / 1e6
        for h, m, s, us, _ in _EVENT.findall(trace)
    ]
    ends = [what for *_, what in _EVENT.findall(trace) if not what.startswith("Trying")]
    if not times or not ends:
        return None
    return (times[-1] - times[0]) % _DAY_S
