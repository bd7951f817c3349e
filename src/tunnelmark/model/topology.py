"""What a lab is made of, before it exists."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Topology:
    """Clients and a server joined by a link."""

    mtu_bytes: int = 1500
    """MTU of the interfaces at both ends of the link."""


CLIENT_IPV4: Final = "198.18.0.1"
SERVER_IPV4: Final = "198.18.0.2"
LINK_PREFIX_IPV4: Final = 24
CLIENT_IPV6: Final = "fd00:7472::1"
SERVER_IPV6: Final = "fd00:7472::2"
LINK_PREFIX_IPV6: Final = 64

MACS: Final = {"client": "02:00:00:00:00:01", "server": "02:00:00:00:00:02"}
"""Addresses of the endpoints' interfaces on the link; locally administered."""


def inner_ipv4(number: int) -> tuple[str, str]:
    """Return (client, server) inside tunnel ``number``: a /30 of 198.19.0.0/16 (RFC 2544)."""
    base = number * 4
    if not 0 <= base < 1 << 16:
        raise ValueError(f"tunnel number is {number}, must be 0 to {(1 << 14) - 1}")
    net = f"198.19.{base >> 8}"
    return f"{net}.{(base & 255) + 2}", f"{net}.{(base & 255) + 1}"


def inner_ipv6(number: int) -> tuple[str, str]:
    """Return (client, server) inside tunnel ``number``: a /64 of fd00::/8 (RFC 4193)."""
    if not 0 <= number < 1 << 14:
        raise ValueError(f"tunnel number is {number}, must be 0 to {(1 << 14) - 1}")
    return f"fd00:7473:0:{number:x}::2", f"fd00:7473:0:{number:x}::1"
