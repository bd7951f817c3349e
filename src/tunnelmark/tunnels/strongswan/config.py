"""Files of strongSwan: swanctl.conf and strongswan.conf from nested settings, secrets unescaped."""

import re
from collections.abc import Mapping
from typing import Final

Settings = Mapping[str, "str | int | Settings"]

IKE_PROPOSAL: Final = "aes128-sha256-ecp256"
"""Of IKE itself, whatever ESP uses: RFC 8247 section 2 asks every implementation for these."""


def render(settings: Settings, indent: str = "") -> str:
    """Return nested settings in the syntax of strongswan.conf(5).

    Raises ``ValueError`` for a name or value that would have to be escaped: ours never do.
    """
    lines = []
    for name, value in settings.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a setting name")
        if isinstance(value, Mapping):
            inner = render(value, indent + "  ").rstrip("\n")
            lines += [f"{indent}{name} {{", *([inner] if inner else []), f"{indent}}}"]
            continue
        if not _VALUE.fullmatch(str(value)):
            # Not the value itself: it may be a secret.
            raise ValueError(f"the value of {name!r} has a character that needs escaping")
        lines.append(f'{indent}{name} = "{value}"')
    return "\n".join([*lines, ""])


def connection_name(number: int) -> str:
    """Return what the connection of a tunnel is called that has one of its own."""
    return f"tm{number}"


def connection(
    *,
    version: int,
    addresses: tuple[str, str],
    local: Settings,
    remote: Settings,
    children: Settings,
    udp_encapsulation: bool = False,
    proposals: str = IKE_PROPOSAL,
    more: Settings | None = None,
) -> Settings:
    """Return a connection between (own, other) address that sends nothing of its own accord."""
    return {
        "version": version,
        "local_addrs": addresses[0],
        "remote_addrs": addresses[1],
        "proposals": proposals,
        "encap": yes_no(value=udp_encapsulation),
        "mobike": "no",
        # No probes and no new keys during the run: they would fall into some trials and not others.
        "dpd_delay": 0,
        "rekey_time": 0,
        "reauth_time": 0,
        **(more or {}),
        "local": local,
        "remote": remote,
        "children": children,
    }


def child(
    *, mode: str, esp_proposals: str, ipcomp: bool = False, more: Settings | None = None
) -> Settings:
    """Return a pair of ESP associations."""
    return {
        "mode": mode,
        "esp_proposals": esp_proposals,
        "ipcomp": yes_no(value=ipcomp),
        "rekey_time": 0,
        **(more or {}),
    }


def yes_no(*, value: bool) -> str:
    """Return a switch as strongSwan writes it."""
    return "yes" if value else "no"


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")
_VALUE: Final = re.compile(r"[^\"\\\n\r\0]{0,1000}")
