"""Which addresses a tunnel has inside and outside, by the IP versions that a study asks for."""

from typing import Final

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.overhead import IP_VERSIONS, LEAST_IPV6_MTU_BYTES, IpName, IpVersion
from tunnelmark.model.topology import GATEWAY_PREFIX_IPV4, GATEWAY_PREFIX_IPV6
from tunnelmark.model.tunnel import Endpoint, Site
from tunnelmark.tunnels.base import TunnelParams

_BITS: Final[dict[IpVersion, int]] = {4: 32, 6: 128}


def inner_addresses(site: Site, number: int, params: TunnelParams) -> tuple[str, str]:
    """Return (client, server) inside tunnel ``number``."""
    return (site.inner_ipv4 if params.inner == "ipv4" else site.inner_ipv6)(number)


def outer_addresses(site: Site, params: TunnelParams, number: int = 0) -> tuple[str, str]:
    """Return (client, server) on the link, each end's own: to listen on and to send from.

    The client of a gateway is client ``number``.
    """
    return site.client_of(number).own(params.outer), site.server.own(params.outer)


def reached_addresses(site: Site, params: TunnelParams, number: int = 0) -> tuple[str, str]:
    """Return (client, server) by which the other end reaches each: behind NAT not its own."""
    ends = (site.client_of(number), site.server)
    client, server = (end.advertised(params.outer) for end in ends)
    return client, server


def client_ends(site: Site) -> tuple[tuple[Endpoint, int | None], ...]:
    """Return where clients are, each with the one tunnel that ends there.

    None: the one client of a site without a gateway, at which all tunnels end.
    """
    if site.clients:
        return tuple((end, number) for number, end in enumerate(site.clients))
    return ((site.client, None),)


def gateway_address(address: str) -> str:
    """Return a gateway's address inside with the prefix length of the network of its clients."""
    return f"{address}/{GATEWAY_PREFIX_IPV6 if ':' in address else GATEWAY_PREFIX_IPV4}"


def outer_version(params: TunnelParams) -> IpVersion:
    """Return the IP version of the tunnel's own packets, for the model and the rule."""
    return IP_VERSIONS[params.outer]


def check_inner_mtu(kind: str, inner: IpName, mtu_bytes: int) -> None:
    """Raise ``TunnelError`` if IPv6 cannot pass an interface of this MTU."""
    if inner == "ipv6" and mtu_bytes < LEAST_IPV6_MTU_BYTES:
        raise RefusedError(
            f"{kind}: the inner MTU is {mtu_bytes} bytes, IPv6 inside needs {LEAST_IPV6_MTU_BYTES}"
        )


def alone(address: str) -> str:
    """Return an address with the prefix length that makes it one host: ``fd00::1/128``."""
    return f"{address}/{_BITS[6 if ':' in address else 4]}"


def with_port(address: str, port: int) -> str:
    """Return an address with a port as URLs write it (RFC 3986 section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def no_dad(address: str) -> tuple[str, ...]:
    """Return what keeps ``ip address`` from having an IPv6 address probed for a duplicate."""
    return ("nodad",) if ":" in address else ()
