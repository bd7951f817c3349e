"""What OpenVPN's own log says: version, what was negotiated, and why it ended."""

import re
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class OpenVpnReport:
    """One end of one tunnel, in OpenVPN's own words; None where it has not said it yet."""

    version: str | None = None
    """For example ``OpenVPN 2.6.14``."""
    libraries: str | None = None
    bound: bool = False
    """The socket exists; for the server: bound to its port, with TCP listening on it."""
    completed: bool = False
    """Keys are agreed and the data channel is open."""
    cipher: str | None = None
    auth: str | None = None
    """Hash of the packet authentication of a CBC cipher; AEAD ciphers have none apart."""
    compression: str | None = None
    mtu_bytes: int | None = None
    control_channel: str | None = None
    control_encryption: str | None = None
    """How tls-crypt encrypts the handshake; None without it."""
    transport: str | None = None
    """``udp`` or ``tcp``."""
    refused: str | None = None
    """The first packet of the peer that did not pass the authentication."""
    no_group: bool = False
    """The TLS library does not have the group of the key exchange."""
    socket_buffers: str | None = None
    mssfix: str | None = None
    """To what the MSS of TCP inside is clamped; only at verb 4."""
    kernel_offload: bool = False
    """OpenVPN opened a data-channel-offload device although the configuration forbids it."""
    epoch: bool = False
    """Keys change by epochs, whose number is in every packet: OpenVPN 2.7 in user space."""
    warnings: tuple[str, ...] = field(default=())

    @property
    def has_keys(self) -> bool:
        """Whether it is up, with keys that both ends agreed on."""
        return self.completed and bool(self.cipher)


def read_log(text: str) -> OpenVpnReport:
    """Return what the log of one end says; anything unknown is passed over.

    Only lines after the last start of the program count, so that the log of an earlier process
    of the same name proves nothing.
    """
    # Options stand two spaces behind the time.
    lines = [_TIME_STAMP.sub("", line.strip()).strip() for line in text.splitlines()]
    start = max((n for n, line in enumerate(lines) if _BANNER.match(line)), default=0)
    # The list of options stands before the banner; what the last process said of one wins.
    mssfix = _mssfix(lines)
    lines = lines[start:]
    data = _last(lines, _DATA_CHANNEL)
    items = dict(_DATA_ITEM.findall(data.group(1))) if data else {}
    mtu = _last(lines, _MTU)
    return OpenVpnReport(
        version=_text(_last(lines, _BANNER)),
        libraries=_text(_last(lines, _LIBRARIES)),
        bound=_last(lines, _BOUND) is not None,
        transport=(_text(_last(lines, _TRANSPORT)) or "").lower() or None,
        control_encryption=_text(_last(lines, _TLS_CRYPT)),
        refused=_text(_last(lines, _REFUSED)),
        completed=any(line.startswith("Initialization Sequence Completed") for line in lines),
        cipher=items.get("cipher"),
        auth=items.get("auth"),
        # Without a compression the data channel line just does not name one.
        compression=items.get("compression", "none") if data else None,
        mtu_bytes=int(mtu.group(1)) if mtu else None,
        control_channel=_text(_last(lines, _CONTROL)),
        no_group=_last(lines, _NO_GROUP) is not None,
        socket_buffers=_text(_last(lines, _BUFFERS)),
        mssfix=mssfix,
        kernel_offload=_last(lines, _OFFLOAD) is not None,
        epoch=_last(lines, _EPOCH) is not None,
        warnings=tuple(
            dict.fromkeys(m.group(1).strip() for line in lines if (m := _WARNING.match(line)))
        ),
    )


def last_words(text: str) -> str:
    """Return the line of a log that says best why OpenVPN ended, for an error message."""
    lines = [_TIME_STAMP.sub("", line.strip()) for line in text.splitlines()]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    reasons = [line for line in complaints if not _CONSEQUENCE.match(line)]
    return (reasons or complaints or lines or ["nothing in its log"])[-1]


def _mssfix(lines: list[str]) -> str | None:
    """Return what the list of options at verb 4 says; ``mssfix_fixed`` is without encapsulation."""
    options = {m.group(1): m.group(2) for line in lines if (m := _MSSFIX.match(line))}
    size = options.get("mssfix")
    if size is None:
        return None
    if size == "0":
        return "off"
    without = options.get("mssfix_fixed") == "ENABLED"
    return f"{size} bytes {'without' if without else 'with'} encapsulation"


_TIME_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:us=\d{1,6} )?")
_BANNER: Final = re.compile(r"^(OpenVPN \d[^ ]*) ")
_LIBRARIES: Final = re.compile(r"^library versions: (.{1,200})$")
_BOUND: Final = re.compile(
    r"^(?:UDPv[46] link local(?: \(bound\))?: |Listening for incoming TCP connection on )"
)
_TRANSPORT: Final = re.compile(r"^(UDP|TCP)v[46](?:_CLIENT|_SERVER)? link remote: ")
_TLS_CRYPT: Final = re.compile(
    r"^Outgoing Control Channel Encryption: (Cipher '[^']{1,40}' initialized .{1,100})$"
)
_REFUSED: Final = re.compile(
    r"^((?:Authenticate/Decrypt packet|tls-crypt unwrap) error: packet .{0,40}"
    r"authentication failed)$"
)
_DATA_CHANNEL: Final = re.compile(r"^Data Channel: (.{1,300})$")
_DATA_ITEM: Final = re.compile(r"(cipher|auth|compression):? '([^']{1,64})'")
_MTU: Final = re.compile(r"^net_iface_mtu_set: mtu (\d{1,6}) for ")
_CONTROL: Final = re.compile(r"^Control Channel: (.{1,300})$")
_NO_GROUP: Final = re.compile(r"^Failed to set allowed TLS group list: ")
_BUFFERS: Final = re.compile(r"^Socket Buffers: (.{1,100})$")
_MSSFIX: Final = re.compile(r"^(mssfix(?:_fixed)?) = (\d{1,6}|ENABLED|DISABLED)$")
_OFFLOAD: Final = re.compile(r"^(?:DCO device .* opened|ovpn-dco device .*opened)")
_EPOCH: Final = re.compile(r"^Outgoing Epoch Data key \d{1,6}: ")
_WARNING: Final = re.compile(r"^(?:WARNING|DEPRECATED OPTION): (.{1,500})$")
_NOISE: Final = re.compile(
    r"^(?:SIG[A-Z0-9]+\[|Exiting due to|Use --help|Closing TUN|event_wait|net_(?:addr|iface|route)_"
    r"|WARNING: (?:Compression|INSECURE|this configuration may cache))"
)
# What follows from every failure of TLS; the reason stands before it.
_CONSEQUENCE: Final = re.compile(
    r"^(?:TLS Error: TLS (?:handshake failed|object -> )|TLS_ERROR: BIO read)"
)
_COMPLAINT: Final = re.compile(
    r"error|fail|cannot|can't|unsupported|not (?:found|supported|permitted|allowed)|refused|invalid"
    r"|denied|no such|in use",
    re.IGNORECASE,
)


def _last(lines: list[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    for line in reversed(lines):
        if match := pattern.match(line):
            return match
    return None


def _text(match: re.Match[str] | None) -> str | None:
    return match.group(1).strip() if match else None
