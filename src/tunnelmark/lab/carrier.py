"""The congestion control of the TCP connections that carry a tunnel, apart from that of its load.

A host has one for all new connections, which a workload may change for a trial, and some tunnels
open a connection for each flow of a trial. So a rule by ports leads a tunnel's connections to
routes of their own, which name theirs (ip-route(8), ``congctl``).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tunnelmark.lab.ip import FAMILY, ip_batch
from tunnelmark.model.congestion import available, default
from tunnelmark.model.errors import LabError, RefusedError
from tunnelmark.model.host import Host
from tunnelmark.model.overhead import IpName
from tunnelmark.model.tunnel import CARRIER_CHOSEN_BY, CARRIER_CONGESTION, ServerPorts, TunnelUp
from tunnelmark.tunnels.base import Tunnel

_TABLE: Final = 7470
_PRIORITY: Final = 100
"""Before what programs add, and behind the host's own addresses."""


def set_carrier(tunnel: Tunnel, hosts: Sequence[Host]) -> None:
    """Give the connections that will carry a tunnel what the study asks for, else the host's own.

    Nothing is done where TCP does not carry it. Raises ``LabError`` where the kernel refuses what
    is asked for; a kernel without rules by ports leaves the host's own.
    """
    if not (ports := tunnel.carriers()):
        return
    wanted = tunnel.params.congestion
    for host in hosts:
        try:
            _set(host, ports, tunnel.params.outer, wanted or default(host))
        except LabError as error:
            if wanted is not None:
                raise LabError(f"congestion is {wanted!r}, which fails here: {error}") from error


def noted(up: TunnelUp, tunnel: Tunnel, hosts: Sequence[Host]) -> TunnelUp:
    """Return a tunnel with the congestion control of the TCP connections that carry it.

    It is read from those that stand; where a tunnel opens them for each flow, it is what they will
    have. Raises ``RefusedError`` if it is not what the study asks for.
    """
    if not (ports := tunnel.carriers()):
        return up
    wanted = tunnel.params.congestion
    used = {name for host in hosts for name in _of_standing(host, ports)}
    if wanted is not None and used - {wanted}:
        raise RefusedError(
            f"congestion is {wanted!r}, and the connections of {tunnel.title} use "
            f"{', '.join(sorted(used))}"
        )
    names = used or ({default(host) for host in hosts} if wanted is None else {wanted})
    details = {
        CARRIER_CONGESTION: ", ".join(sorted(names)),
        CARRIER_CHOSEN_BY: "kernel" if wanted is None else "study",
    }
    agreed = (replace(one, details={**one.details, **details}) for one in up.negotiated)
    return replace(up, negotiated=tuple(agreed))


def _set(host: Host, ports: Sequence[ServerPorts], ip: IpName, name: str) -> None:
    shown = host.run(["ip", FAMILY[ip], "route", "show", "table", "main"]).text()
    routes = [line.strip() for line in shown.splitlines() if line.strip()]
    ranges = [f"{way} {one.first}-{one.last}" for one in ports for way in ("dport", "sport")]
    lines = [f"route add {route} table {_TABLE} congctl {name}" for route in routes]
    # Either end may have opened the connection.
    lines += [
        f"rule add priority {_PRIORITY} ipproto tcp {match} lookup {_TABLE}" for match in ranges
    ]
    ip_batch(host, lines, ip=ip)


def _of_standing(host: Host, ports: Sequence[ServerPorts]) -> set[str]:
    """Return the congestion controls of connections that stand; empty where ``ss`` does not say."""
    ends = (
        f"( {way} >= :{one.first} and {way} <= :{one.last} )"
        for one in ports
        for way in ("sport", "dport")
    )
    words = ["ss", "-tinHO", "state", "established", *" or ".join(ends).split()]
    said = host.run(words, check=False).text().split()
    return set(said) & set(available(host)) if said else set()
