"""What the tunnels over PPP share: options and secrets of pppd, and what it says was agreed.

pppd reads ``/etc/ppp`` wherever it is started from. Each daemon gets a directory of its own bound
over it (``in_own_etc``), so that nothing of the machine's configuration counts and no secret of a
run stands where others look.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final, Literal

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.overhead import Layer
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.ppp.log import PppReport, read_log

Mppe = Literal["128-stateless", "128-stateful", "40", "none"]
"""Encryption inside PPP (RFC 3078); 40 is stateless as well."""
Compression = Literal["none", "deflate", "bsd"]
"""RFC 1979, RFC 1977. Of MPPC (RFC 2118) Linux has no implementation."""

PROGRAMS: Final = {"pppd": "ppp", "unshare": "util-linux", "mount": "mount", "ip": "iproute2"}
"""Programs that every tunnel over PPP needs, with their Debian packages."""
KERNEL: Final[dict[Mppe | Compression, tuple[str, ...]]] = {
    "128-stateless": ("ppp", "ppp_mppe"),
    "128-stateful": ("ppp", "ppp_mppe"),
    "40": ("ppp", "ppp_mppe"),
    "none": ("ppp",),
    "deflate": ("ppp", "ppp_deflate"),
    "bsd": ("ppp", "bsd_comp"),
}
"""Kernel features that each way to encrypt or compress needs."""
MPPE_PAD_BYTES: Final = 4
"""What pppd takes off the interface's MTU for MPPE."""

_TRIES: Final = 40
"""How often a packet of the negotiation is sent again: beyond the wait for a whole call."""
_GONE_LIMIT_S: Final = 10.0
_GONE_POLL_S: Final = 0.05
_LOG_BYTES: Final = 4 << 20
_ETC: Final = "/etc/ppp"
_IN_OWN_ETC: Final = 'mount --bind "$1" /etc/ppp && shift && exec "$@"'


@dataclass(frozen=True)
class PppAccount:
    """A user made for this run."""

    name: str
    password: str


@dataclass(frozen=True)
class PppSetup:
    """The options of one pppd."""

    side: Side
    interface: str
    """Name of the interface it shall make."""
    mtu_bytes: int
    """MTU that the interface shall have."""
    log: PurePosixPath
    """File on the host to which pppd writes its log."""
    mppe: Mppe = "none"
    compression: Compression = "none"
    ipv6: bool = False
    """Whether IPv6 is agreed on beside IPv4 (RFC 5072)."""
    more: tuple[str, ...] = ()
    """Options of the tunnel itself, a line each."""


DEVIATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nomagic": "pppd draws its magic number from the clock and its process id: if two on one "
        "computer draw the same ones, each takes the other for its own echo and hangs up"
    }
)
"""What every pppd is given although it is not its own default, and why."""


@dataclass(frozen=True)
class PppEnd:
    """One pppd that was started."""

    host: Host
    setup: PppSetup

    def log(self) -> str:
        """Return what pppd has written; nothing if it has not begun."""
        try:
            return self.host.get(self.setup.log, limit_bytes=_LOG_BYTES).decode("utf-8", "replace")
        except LabError:
            return ""

    def report(self) -> PppReport:
        """Return what its log says."""
        return read_log(self.log())


def new_account(name: str) -> PppAccount:
    """Return a user with a password of 128 random bits."""
    return PppAccount(name, secrets.token_hex(16))


def put_options(host: Host, path: PurePosixPath, setup: PppSetup, account: PppAccount) -> None:
    """Write one pppd's options and an empty log, for root only: the client has a password."""
    host.put(setup.log, b"")
    host.put(path, "\n".join([*option_lines(setup, account), ""]).encode())


def put_etc(host: Host, directory: PurePosixPath, accounts: Sequence[PppAccount]) -> None:
    """Write what shall stand in ``/etc/ppp``: no options, no scripts, and only these users."""
    host.put(directory / "options", b"")
    # pppd(8), AUTHENTICATION: client, server, secret, addresses the client may use.
    lines = [f'"{account.name}" * "{account.password}" *\n' for account in accounts]
    host.put(directory / "chap-secrets", "".join(lines).encode())


def hang_up(process: Process, ends: Sequence[PppEnd]) -> None:
    """End a daemon together with its pppds, and return when their interfaces are gone."""
    process.stop()
    # RFC 1661 section 5.5: a pppd that outlives it says goodbye for seconds, to nobody by now.
    process.kill()
    deadline = time.monotonic() + _GONE_LIMIT_S
    while any(_is_there(end) for end in ends) and time.monotonic() < deadline:
        time.sleep(_GONE_POLL_S)


def in_own_etc(directory: PurePosixPath, argv: Sequence[str]) -> list[str]:
    """Return how to start a program that sees ``directory`` as ``/etc/ppp``, and it alone does."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-c", _IN_OWN_ETC, "own-etc", str(directory), *argv]


def option_lines(setup: PppSetup, account: PppAccount) -> list[str]:
    """Return the options file of one pppd, line by line (pppd(8))."""
    mtu = setup.mtu_bytes + (MPPE_PAD_BYTES if setup.mppe != "none" else 0)
    ours, theirs = ("::2", "::1") if setup.side == "client" else ("::1", "::2")
    return [
        f"ifname {setup.interface}",
        f"logfile {setup.log}",
        "debug",
        f"mtu {mtu}",
        f"mru {mtu}",
        *_AUTHENTICATION[setup.side],
        f"name {account.name if setup.side == 'client' else 'tunnelmark'}",
        *([f"password {account.password}"] if setup.side == "client" else []),
        *_MPPE[setup.mppe],
        *_compression(setup),
        *([f"ipv6 {ours},{theirs}"] if setup.ipv6 else ["noipv6"]),
        # A lost packet of the negotiation is sent again after a second, not after three, and no
        # sooner given up for that: ten times would be ten seconds, too few for an emulated CPU.
        *(f"{protocol}-restart 1" for protocol in ("lcp", "chap", "ipcp", "ipv6cp")),
        *(f"{protocol}-max-configure {_TRIES}" for protocol in ("lcp", "ipcp", "ipv6cp")),
        f"chap-max-challenge {_TRIES}",
        # Header compression would make sizes depend on the packets before.
        *("novj", "novjccomp", "nopredictor1"),
        *("nodefaultroute", "noproxyarp", "nopersist"),
        *DEVIATIONS,
        *setup.more,
    ]


def _is_there(end: PppEnd) -> bool:
    links = end.host.run(["ip", "-o", "link", "show"], check=False).text()
    return f": {end.setup.interface}: " in links


@dataclass(frozen=True)
class PppFraming:
    """What PPP puts before an IP packet in one direction, without what carries PPP."""

    address_and_control_bytes: int
    protocol_bytes: int
    mppe: bool

    def layers(self) -> tuple[Layer, ...]:
        """Return the layers, outermost first."""
        header = Layer(
            "PPP address and control", self.address_and_control_bytes, "RFC 1662 section 3.1"
        )
        return (
            *((header,) if header.bytes else ()),
            Layer("PPP protocol", self.protocol_bytes, "RFC 1661 section 2, 6.5"),
            # RFC 3078 section 3: flags and coherency count; the encrypted protocol behind it is
            # never compressed by Linux.
            *((Layer("MPPE header", 2, "RFC 3078 section 3"),) if self.mppe else ()),
            *((Layer("encrypted PPP protocol", 2, "RFC 3078 section 3"),) if self.mppe else ()),
        )


def framing(report: PppReport) -> PppFraming:
    """Return what stands before each packet that the end with this report sends.

    Compression by deflate or BSD-Compress leaves a packet that does not get smaller as it is, so
    the framing is that of none.
    """
    return PppFraming(
        address_and_control_bytes=0 if report.sends_without_address else 2,
        protocol_bytes=1 if report.sends_short_protocol else 2,
        mppe=report.mppe != "none",
    )


_AUTHENTICATION: Final[dict[Side, tuple[str, ...]]] = {
    "client": ("noauth", "refuse-eap", "refuse-pap", "refuse-chap", "refuse-mschap"),
    "server": (
        *("auth", "require-mschap-v2"),
        *("refuse-eap", "refuse-pap", "refuse-chap", "refuse-mschap"),
    ),
}
_MPPE: Final[dict[Mppe, tuple[str, ...]]] = {
    "128-stateless": ("require-mppe-128", "nomppe-40", "nomppe-stateful"),
    "128-stateful": ("require-mppe-128", "nomppe-40", "mppe-stateful"),
    "40": ("require-mppe-40", "nomppe-128", "nomppe-stateful"),
    "none": ("nomppe",),
}
_COMPRESSION_BITS: Final = 15


def _compression(setup: PppSetup) -> tuple[str, ...]:
    bits = f"{_COMPRESSION_BITS},{_COMPRESSION_BITS}"
    match setup.compression:
        case "deflate":
            return (f"deflate {bits}", "nobsdcomp")
        case "bsd":
            return (f"bsdcomp {bits}", "nodeflate")
        case "none":
            # Without anything to agree on, the protocol that agrees on it is left out.
            return ("nodeflate", "nobsdcomp", *(("noccp",) if setup.mppe == "none" else ()))
