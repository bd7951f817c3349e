"""What a lab is made of, before it exists."""

from dataclasses import dataclass
from typing import Final, Literal

Router = Literal["none", "routed", "nat"]
"""What stands between the link and the server: nothing, a router, or one with NAT of IPv4."""


@dataclass(frozen=True)
class Topology:
    """A client and a server joined by a link, the server behind a router if there is one."""

    mtu_bytes: int = 1500
    """MTU of the interfaces at both ends of the link."""
    router: Router = "none"
    """The client is on the router's inner side: with ``nat`` the server sees the router's address
    in place of the client's. IPv6 is routed as it is."""
    reassembly_bytes: int | None = None
    """Memory for fragments at each endpoint; None: what the kernel has by itself."""
    clients: int | None = None
    """Clients of one gateway; None: one client, and no gateway."""
    shared: bool = False
    """All clients of the gateway are on one link; else each has one of its own."""

    @property
    def behind_router(self) -> bool:
        """Whether the server is."""
        return self.router != "none"


MOST_CLIENTS: Final = 200
"""Of one gateway: each has a namespace and a process that is its link."""


CLIENT_IPV4: Final = "198.18.0.1"
SERVER_IPV4: Final = "198.18.0.2"
LINK_PREFIX_IPV4: Final = 24
CLIENT_IPV6: Final = "fd00:7472::1"
SERVER_IPV6: Final = "fd00:7472::2"
LINK_PREFIX_IPV6: Final = 64

ROUTER_IPV4: Final = "198.18.0.254"
ROUTER_IPV6: Final = "fd00:7472::fe"
"""The router's side towards the link."""
OUTSIDE_ROUTER_IPV4: Final = "198.18.1.254"
OUTSIDE_ROUTER_IPV6: Final = "fd00:7471::fe"
"""Its side towards the server; what the server sees of a client behind NAT."""
OUTSIDE_SERVER_IPV4: Final = "198.18.1.2"
OUTSIDE_SERVER_IPV6: Final = "fd00:7471::2"
"""The server's addresses where there is a router."""

MACS: Final = {
    "client": "02:00:00:00:00:01",
    "server": "02:00:00:00:00:02",
    "router": "02:00:00:00:00:03",
    "outside": "02:00:00:00:00:04",
}
"""Addresses of the endpoints' interfaces, and of the router's two; locally administered."""


GATEWAY_PREFIX_IPV4: Final = 24
GATEWAY_PREFIX_IPV6: Final = 64
"""Of the one network inside a gateway."""


def client_addresses(number: int) -> tuple[str, str]:
    """Return (IPv4, IPv6) on the link of client ``number`` of a gateway."""
    _check_client(number)
    return (
        (f"198.18.0.{number + 2}", f"fd00:7472::{number + 2:x}")
        if number
        else (CLIENT_IPV4, CLIENT_IPV6)
    )


def wire_macs(number: int) -> tuple[str, str]:
    """Return (client's, server's) address on the wire of client ``number`` of a gateway."""
    _check_client(number)
    if not number:
        return MACS["client"], MACS["server"]
    return f"02:00:00:00:01:{number:02x}", f"02:00:00:00:02:{number:02x}"


def gateway_ipv4(number: int) -> tuple[str, str]:
    """Return (client, server) inside a gateway, the same server for each client."""
    _check_client(number)
    return f"198.19.0.{number + 2}", "198.19.0.1"


def gateway_ipv6(number: int) -> tuple[str, str]:
    """Return (client, server) inside a gateway, the same server for each client."""
    _check_client(number)
    return f"fd00:7473::{number + 2:x}", "fd00:7473::1"


def _check_client(number: int) -> None:
    if not 0 <= number < MOST_CLIENTS:
        raise ValueError(f"client number is {number}, must be 0 to {MOST_CLIENTS - 1}")


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
