"""Whether an OpenVPN has a group for the TLS key exchange: asked by starting it with that alone."""

from datetime import datetime
from typing import Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.tunnels import pki
from tunnelmark.tunnels.openvpn.log import read_log

_LIMIT_S: Final = 1.0
"""One that has the group waits for a client that never comes; one that lacks it ends at once."""
_PORT: Final = 11940
_NAME: Final = "tunnelmark"


def no_group(host: Host, group: str, now: datetime) -> str | None:
    """Return that the host's OpenVPN lacks a group, with its TLS library, or None.

    ``--show-groups`` names neither X25519 nor the hybrid groups. The server that is started here
    knows nobody to send to, and has no tunnel device.
    """
    authority = pki.RunAuthority(_NAME, now)
    identity = authority.issue(_NAME, "server")
    files = {
        "ca": authority.certificate,
        "cert": identity.certificate,
        "key": identity.key,
    }
    lines = [
        *("dev null", "tls-server", "dh none", "proto udp4", "local 127.0.0.1", f"lport {_PORT}"),
        *("verb 3", f"tls-groups {group}"),
        *(f"<{name}>\n{content.decode().strip()}\n</{name}>" for name, content in files.items()),
    ]
    config = "\n".join([*lines, ""]).encode()
    words = ["openvpn", "--config", "stdin"]
    try:
        done = host.run(words, stdin=config, timeout_s=_LIMIT_S, check=False)
    except LabError:
        return None
    report = read_log(done.text())
    if not report.no_group:
        return None
    return (
        f"{report.version or 'OpenVPN'} with {report.libraries or 'its TLS library'} has no TLS "
        f"group {group}"
    )
