"""TCP MSS clamping as a gateway does it: SYNs that enter a tunnel offer a smaller segment.

Clamping to the route's MTU is not offered: these SYNs are the hosts' own, which do that already.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import TunnelUp

_TABLE: Final = "tm-mss"
_LIMIT_S: Final = 10.0


def clamp(up: TunnelUp, mss_bytes: int, *, client: Host, server: Host) -> TunnelUp:
    """Clamp at both ends what enters the tunnel's interfaces; return ``up`` with a note of it.

    ``client`` is that of paths without one of their own. Of SYN and SYN-ACK each end changes its
    own. No option is ever made larger. Raises ``LabError`` where the kernel refuses.
    """
    ends: dict[str, tuple[Host, list[str]]] = {}
    for path in up.paths:
        for host, interface in (
            (path.client.host if path.client else client, path.client_interface),
            (path.server.host if path.server else server, path.server_interface),
        ):
            ends.setdefault(host.name, (host, []))[1].append(interface)
    for host, interfaces in ends.values():
        rules = host.work_dir / "mss-clamp.nft"
        host.put(rules, text(interfaces, mss_bytes).encode())
        done = host.run(["nft", "-f", str(rules)], timeout_s=_LIMIT_S, check=False)
        if done.returncode != 0:
            raise LabError(
                f"mss_clamp is {mss_bytes}, which the kernel of {host.name} refuses: "
                f"{done.last_words()}"
            )
    noted = tuple(
        replace(agreed, details={**agreed.details, "mss_clamp": str(mss_bytes)})
        for agreed in up.negotiated
    )
    return replace(up, negotiated=noted)


def text(interfaces: Sequence[str], mss_bytes: int) -> str:
    """Return the rules for one end, in the language of nft."""
    names = ", ".join(f'"{name}"' for name in dict.fromkeys(interfaces))
    return (
        f"table inet {_TABLE}\n"
        f"delete table inet {_TABLE}\n"
        f"table inet {_TABLE} {{\n"
        "  chain out {\n"
        "    type filter hook output priority mangle\n"
        f"    oifname {{ {names} }} tcp flags syn / syn,rst "
        f"tcp option maxseg size > {mss_bytes} tcp option maxseg size set {mss_bytes}\n"
        "  }\n"
        "}\n"
    )


def removal(*hosts: Host) -> list[Callable[[], None]]:
    """Return what removes the rules, also where there are none."""
    return [partial(_remove, host) for host in hosts]


def _remove(host: Host) -> None:
    host.run(["nft", "delete", "table", "inet", _TABLE], check=False)
