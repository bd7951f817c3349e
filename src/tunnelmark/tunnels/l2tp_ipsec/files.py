"""Configuration of xl2tpd, as text."""

from collections.abc import Sequence

_GLOBAL = """\
[global]
listen-addr = {address}
port = 1701
"""
_CLIENT = """\
[lac tm]
lns = {server}
autodial = yes
redial = no
ppp debug = yes
pppoptfile = {options}
"""
_SERVER = """\
[lns tm{number}]
lac = {client}
ip range = {inner_client}-{inner_client}
local ip = {inner_server}
require authentication = yes
refuse pap = yes
name = tunnelmark
ppp debug = yes
pppoptfile = {options}
"""


def client_config(address: str, server: str, options: str) -> str:
    """Return the file of a client at ``address`` that calls ``server`` once, at its start."""
    return _GLOBAL.format(address=address) + _CLIENT.format(server=server, options=options)


def server_config(address: str, clients: Sequence[tuple[str, tuple[str, str], str]]) -> str:
    """Return the file of a server that knows its clients by their address.

    ``clients``: (address on the link, (client, server) address inside, options file of pppd).
    """
    sections = [
        _SERVER.format(
            number=number,
            client=client,
            inner_client=inner_client,
            inner_server=inner_server,
            options=options,
        )
        for number, (client, (inner_client, inner_server), options) in enumerate(clients)
    ]
    # Nobody else is answered.
    return _GLOBAL.format(address=address) + "access control = yes\n" + "".join(sections)
