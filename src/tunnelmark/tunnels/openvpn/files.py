"""Keys and certificates of OpenVPN, and a gateway's files of its clients: made for each run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Final

from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import Side, Site
from tunnelmark.tunnels import pki
from tunnelmark.tunnels.addressing import inner_addresses
from tunnelmark.tunnels.openvpn.gateway import client_file, common_name
from tunnelmark.tunnels.openvpn.params import OpenVpnParams

_COMMAND_LIMIT_S: Final = 30.0
_KEY_LIMIT_BYTES: Final = 1 << 16


def put_files(site: Site, params: OpenVpnParams) -> None:
    """Write what each end has of its own into its ``folder``."""
    secret = _secret()
    clients = [end.host for end in site.clients or (site.client,)]
    for host in (site.server.host, *clients):
        host.put(folder(host) / "secret.key", secret)
    if params.control == "tls-crypt-v2":
        _put_wrapped_keys(site, clients)
    authority = pki.RunAuthority(site.prefix, datetime.now(UTC))
    ends: list[tuple[Side, Host, str]] = [
        ("server", site.server.host, f"{site.prefix} server"),
        *(("client", host, common_name(site.prefix, n)) for n, host in enumerate(clients)),
    ]
    for number in range(len(site.clients)):
        content = client_file(params.inner, *inner_addresses(site, number, params))
        server = site.server.host
        server.put(clients_dir(server) / common_name(site.prefix, number), content)
    for side, host, name in ends:
        identity = authority.issue(name, side)
        host.put(folder(host) / "ca.crt", authority.certificate)
        host.put(folder(host) / f"{side}.crt", identity.certificate)
        host.put(folder(host) / f"{side}.key", identity.key)


def folder(host: Host) -> PurePosixPath:
    """Return where an end's files are."""
    return host.work_dir / "openvpn"


def clients_dir(host: Host) -> PurePosixPath:
    """Return where a gateway has a file for each of its clients."""
    return folder(host) / "clients"


def _put_wrapped_keys(site: Site, clients: Sequence[Host]) -> None:
    """Have OpenVPN make the server's key, and one of each client that is wrapped in it."""
    host = site.server.host
    keys = {side: folder(host) / f"{side}-v2.key" for side in ("server", "client")}
    make = ("openvpn", "--genkey")
    words = (*make, "tls-crypt-v2-server", str(keys["server"]))
    host.run(words, timeout_s=_COMMAND_LIMIT_S)
    words = ("--tls-crypt-v2", str(keys["server"]), *make[1:], "tls-crypt-v2-client")
    for client in clients:
        host.run([make[0], *words, str(keys["client"])], timeout_s=_COMMAND_LIMIT_S)
        wrapped = host.get(keys["client"], limit_bytes=_KEY_LIMIT_BYTES)
        client.put(folder(client) / "client-v2.key", wrapped)


def _secret() -> bytes:
    """Return a new 2048-bit static key file, as ``openvpn --genkey secret`` writes it."""
    lines = [token_hex(16) for _ in range(16)]
    begin, end = (f"-----{word} OpenVPN Static key V1-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, *lines, end, ""]).encode()
