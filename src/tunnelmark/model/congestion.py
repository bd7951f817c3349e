"""Congestion controls of TCP by name, and which of them a host has."""

from typing import Annotated, Final

from pydantic import Field

from tunnelmark.model.host import Host

CongestionName = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")]
MODELLED: Final = ("cubic", "reno")
"""Those that virtual time has; the first is the default, as it is Linux's."""

_AVAILABLE: Final = "/proc/sys/net/ipv4/tcp_available_congestion_control"
_DEFAULT: Final = "/proc/sys/net/ipv4/tcp_congestion_control"


def available(host: Host) -> list[str]:
    """Return those in a host's kernel."""
    return host.run(["cat", _AVAILABLE], check=False).text().split()


def default(host: Host) -> str:
    """Return the one of a host's new connections; raises ``LabError`` if the host does not say."""
    return host.run(["cat", _DEFAULT]).text().strip()


def lacking(host: Host, wanted: str) -> str | None:
    """Return that a host's kernel does not have ``wanted``, with the remedy, or None."""
    if wanted in (known := available(host)):
        return None
    return (
        f"congestion is {wanted!r}, the kernel has {', '.join(known) or 'none'} "
        f"(modprobe tcp_{wanted})"
    )


def unmodelled(wanted: str | None) -> str | None:
    """Return that virtual time does not have ``wanted``, or None."""
    if wanted is None or wanted in MODELLED:
        return None
    return f"congestion is {wanted!r}, only {' and '.join(MODELLED)} are simulated"
