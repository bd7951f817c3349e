"""The clients of a gateway beside the first: their addresses, and the server's way to them."""

from collections.abc import Callable
from functools import partial

from tunnelmark.lab.ip import ip_batch
from tunnelmark.lab.place import Joined, LabHost
from tunnelmark.model.host import Host
from tunnelmark.model.together import together
from tunnelmark.model.topology import (
    LINK_PREFIX_IPV4,
    LINK_PREFIX_IPV6,
    MACS,
    client_addresses,
    wire_macs,
)
from tunnelmark.model.tunnel import Endpoint


def address_clients(
    joined: Joined,
    server: Endpoint,
    mtu_bytes: int,
    *,
    sysctls: Callable[[Host], None],
    shared: bool = False,
) -> tuple[Endpoint, ...]:
    """Address all clients but the first, and the server's end of their wires; return them.

    The server has one address, on ``eth0``, and a route to each client; where one link is
    ``shared`` all are its neighbours there. ``sysctls`` sets what the kernel of an end does with
    packets.
    """
    clients = list(enumerate(joined.more_clients, 1))
    ends = tuple(
        Endpoint(
            host,
            *client_addresses(number),
            "eth0",
            mtu_bytes,
            netns=joined.netns.get(host.name),
            wire=None if shared else f"eth{number}",
        )
        for number, host in clients
    )
    together(
        partial(_at_shared if shared else _at_server, joined.server, server, ends),
        *(
            partial(_at_client, number, host, end, server, sysctls, shared=shared)
            for (number, host), end in zip(clients, ends, strict=True)
        ),
    )
    return ends


def _at_client(
    number: int,
    host: LabHost,
    own: Endpoint,
    server: Endpoint,
    sysctls: Callable[[Host], None],
    *,
    shared: bool,
) -> None:
    sysctls(host)
    here, there = wire_macs(number)
    there = MACS["server"] if shared else there
    ip_batch(
        host,
        [
            f"link set eth0 address {here}",
            "link set eth0 arp off multicast off",
            f"address add {own.ipv4}/{LINK_PREFIX_IPV4} dev eth0",
            "link set eth0 up",
            f"neighbour replace {server.ipv4} lladdr {there} dev eth0 nud permanent",
        ],
    )
    lines_ipv6 = [
        f"address add {own.ipv6}/{LINK_PREFIX_IPV6} dev eth0 nodad",
        f"neighbour replace {server.ipv6} lladdr {there} dev eth0 nud permanent",
    ]
    ip_batch(host, lines_ipv6, check=False)


def _at_shared(host: LabHost, server: Endpoint, clients: tuple[Endpoint, ...]) -> None:
    at = f"dev {server.interface} nud permanent"
    macs = [wire_macs(number)[0] for number in _numbers(clients)]
    ends = list(zip(clients, macs, strict=True))
    ip_batch(host, [f"neighbour replace {one.ipv4} lladdr {mac} {at}" for one, mac in ends])
    lines_ipv6 = [f"neighbour replace {one.ipv6} lladdr {mac} {at}" for one, mac in ends]
    ip_batch(host, lines_ipv6, check=False)


def _at_server(host: LabHost, server: Endpoint, clients: tuple[Endpoint, ...]) -> None:
    # Interfaces that came before their settings: no link-local address, nothing that asks.
    settings = [f"net.ipv6.conf.eth{number}.addr_gen_mode=1" for number in _numbers(clients)]
    host.run(["sysctl", "-eqw", *settings], check=False)
    lines, lines_ipv6 = [], []
    for number, client in zip(_numbers(clients), clients, strict=True):
        there, here = wire_macs(number)
        end = f"eth{number}"
        lines += [
            f"link set {end} address {here}",
            f"link set {end} arp off multicast off",
            f"link set {end} up",
            f"neighbour replace {client.ipv4} lladdr {there} dev {end} nud permanent",
            f"route add {client.ipv4}/32 dev {end} src {server.ipv4}",
        ]
        lines_ipv6 += [
            f"neighbour replace {client.ipv6} lladdr {there} dev {end} nud permanent",
            f"route add {client.ipv6}/128 dev {end} src {server.ipv6}",
        ]
    ip_batch(host, lines)
    ip_batch(host, lines_ipv6, check=False)


def _numbers(clients: tuple[Endpoint, ...]) -> range:
    return range(1, len(clients) + 1)
