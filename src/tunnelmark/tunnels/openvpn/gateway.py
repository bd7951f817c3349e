"""OpenVPN as a gateway (``--server``): what its end says of each client, and what configures it."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any, Final

from tunnelmark.model.overhead import IpName
from tunnelmark.model.topology import GATEWAY_PREFIX_IPV4, GATEWAY_PREFIX_IPV6
from tunnelmark.tunnels.openvpn.log import OpenVpnReport, read_log

LOG_LINES: Final = 20_000
"""At verb 4 it says some 30 lines of each client."""
_MASK: Final = "255.255.255.0"
_NETWORK_IPV4: Final = f"198.19.0.0/{GATEWAY_PREFIX_IPV4}"
_NETWORK_IPV6: Final = f"fd00:7473::/{GATEWAY_PREFIX_IPV6}"


def server_words(inner: IpName, clients_dir: PurePosixPath) -> list[str]:
    """Return the options of the gateway: one network for all, nothing from client to client.

    The addresses are those of ``model.topology``; each client has its own from ``clients_dir``,
    and who has no file there is refused.
    """
    network = (
        ["--server", _NETWORK_IPV4.partition("/")[0], _MASK]
        if inner == "ipv4"
        else ["--server-ipv6", _NETWORK_IPV6]
    )
    return [
        *("--topology", "subnet", *network),
        *("--client-config-dir", str(clients_dir), "--ccd-exclusive"),
    ]


def client_file(inner: IpName, client: str, server: str) -> bytes:
    """Return the file of a client in the directory of them: its address inside."""
    line = (
        f"ifconfig-push {client} {_MASK}"
        if inner == "ipv4"
        else f"ifconfig-ipv6-push {client}/{GATEWAY_PREFIX_IPV6} {server}"
    )
    return f"{line}\n".encode()


def common_name(prefix: str, number: int) -> str:
    """Return the name in a client's certificate, that of its file too."""
    return f"{prefix}-client-{number}"


def of_clients(log: str) -> Mapping[str, OpenVpnReport]:
    """Return what a gateway's log says of each client that has shown its certificate, by its name.

    What it says of itself, as its version and its transport, is in each of them. Every line is read
    once, however many clients there are.
    """
    own: list[str] = []
    peers: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for line in log.splitlines():
        match = _OF_CLIENT.match(line.strip())
        if match is None:
            own.append(line)
            continue
        stamp, name, peer, words = match.groups()
        # Until the client has shown its certificate it has no name.
        if name is not None:
            names[name] = peer
        peers.setdefault(peer, []).append(f"{stamp or ''}{words}")
    itself = read_log("\n".join(own))
    return {name: _joined(itself, read_log("\n".join(peers[peer]))) for name, peer in names.items()}


def _joined(itself: OpenVpnReport, client: OpenVpnReport) -> OpenVpnReport:
    """Return what is said of a client, and of the gateway where nothing is said of the client."""
    said: dict[str, Any] = {
        field.name: getattr(client, field.name) or getattr(itself, field.name)
        for field in fields(OpenVpnReport)
    }
    said["warnings"] = tuple(dict.fromkeys((*itself.warnings, *client.warnings)))
    return OpenVpnReport(**said)


_OF_CLIENT: Final = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:us=\d{1,6} )?)?(?:([^ /]{1,64})/)?"
    r"((?:[0-9.]{7,15}|\[?[0-9a-f:]{3,39}\]?):\d{1,5}) (.*)$"
)
