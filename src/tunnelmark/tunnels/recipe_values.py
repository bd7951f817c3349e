"""What the templates of a recipe are filled with: addresses, ports, keys made for one tunnel."""

import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Side, Site
from tunnelmark.tunnels.addressing import inner_addresses, outer_addresses, reached_addresses
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.recipe_fill import fill
from tunnelmark.tunnels.recipe_text import Key, Recipe
from tunnelmark.tunnels.support import inner_interface

SIDES: Final[tuple[Side, Side]] = ("client", "server")

_COMMAND_LIMIT_S: Final = 30.0
_OTHER: Final[dict[Side, Side]] = {"client": "server", "server": "client"}

Values = dict[Side, dict[str, str]]


def values_of(
    recipe: Recipe,
    site: Site,
    params: TunnelParams,
    number: int,
    *,
    settings: Mapping[str, str | int],
    mtu_bytes: int,
) -> Values:
    """Return the values of each side for tunnel ``number``; writes certificates on both hosts.

    Raises ``RefusedError`` if the command of a key wrote nothing that is one.
    """
    inner = dict(zip(SIDES, inner_addresses(site, number, params), strict=True))
    own = dict(zip(SIDES, outer_addresses(site, params), strict=True))
    reached = dict(zip(SIDES, reached_addresses(site, params), strict=True))
    hosts = _hosts(site)
    values: Values = {}
    for side in SIDES:
        one = {
            "number": str(number),
            "side": side,
            "mtu": str(mtu_bytes),
            "interface": inner_interface(site, "r", number, side),
            # An earlier tunnel of this run may have had one.
            "folder": str(hosts[side].work_dir / unique_name(f"recipe-{number}")),
        }
        # Each end as this one knows it: itself by its own, the other by where it is reached.
        outer = {**reached, side: own[side]}
        for where, addresses in (("inner", inner), ("outer", outer)):
            one[f"{where}.here"] = addresses[side]
            one[f"{where}.there"] = addresses[_OTHER[side]]
            one |= {f"{where}.{name}": address for name, address in addresses.items()}
        one |= {f"port.{name}": str(port + number) for name, port in recipe.ports.items()}
        one |= {f"set.{name}": str(value) for name, value in settings.items()}
        one |= {f"program.{name}": hosts[side].has(name) or name for name in recipe.programs}
        values[side] = one
    for name, key in recipe.key.items():
        _make_key(hosts, name, key, values)
    if recipe.certificates:
        _make_certificates(site, values)
    return values


def _make_key(hosts: Mapping[Side, Host], name: str, key: Key, values: Values) -> None:
    sides: tuple[Side, ...] = SIDES if key.each_side else ("server",)
    made = {
        side: {"": secrets.token_hex(key.bytes)}
        if key.bytes is not None
        else _by_command(hosts[side], name, key, values[side])
        for side in sides
    }
    for side in SIDES:
        owners: dict[str, Side] = (
            {".here": side, ".there": _OTHER[side]} if key.each_side else {"": "server"}
        )
        for where, owner in owners.items():
            for group, value in made[owner].items():
                values[side][f"key.{name}{where}{'.' + group if group else ''}"] = value


def _by_command(host: Host, name: str, key: Key, values: Mapping[str, str]) -> dict[str, str]:
    argv = [fill(word, values) for word in key.command or ()]
    done = host.run(argv, timeout_s=_COMMAND_LIMIT_S)
    said = done.text() + done.stderr.decode("utf-8", "replace")
    found = re.search(key.reads or "", said)
    if found is None:
        # What it wrote is not shown: it may be the secret.
        raise RefusedError(f"{argv[0]} on {host.name} wrote nothing that key.{name}.reads matches")
    return {group: value or "" for group, value in found.groupdict().items()}


def _make_certificates(site: Site, values: Values) -> None:
    from tunnelmark.tunnels.pki import RunAuthority  # noqa: PLC0415 - slow to load, for few

    authority = RunAuthority(site.prefix, datetime.now(UTC))
    for side, host in _hosts(site).items():
        values[side]["certificate.here"] = f"{site.prefix} {side}"
        values[side]["certificate.there"] = f"{site.prefix} {_OTHER[side]}"
        identity = authority.issue(f"{site.prefix} {side}", side)
        folder = PurePosixPath(values[side]["folder"])
        host.put(folder / "ca.crt", authority.certificate)
        host.put(folder / "own.crt", identity.certificate)
        host.put(folder / "own.key", identity.key)


def _hosts(site: Site) -> dict[Side, Host]:
    return {"client": site.client.host, "server": site.server.host}
