"""``hosts.toml``: two hosts and the line between them, as the user names them."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
    ip_network,
)
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.model.overhead import IpName
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import RateBitS

Role = Literal["client", "server"]
ROLES: Final[tuple[Role, ...]] = ("client", "server")
Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
"""An address with the length of its network's prefix."""
MOST_BYTES: Final = 64 * 1024
"""An inventory that is longer is none."""
_MOST_PORTS: Final = 64
_DESTINATION: Final = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:%\[\]/-]{0,254}")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,14}")
_NAME: Final = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
"""RFC 1123 section 2.1, and underscores; digits and dots alone are an address."""
_INSIDE: Final = (ip_network("198.18.0.0/15"), ip_network("fd00:7470::/28"))
"""For the inside of tunnels and for emulated labs (model/topology.py)."""


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a string in quotes")  # noqa: TRY004 - pydantic wants ValueError
    return value


def _address(value: object) -> object:
    """Take an address, with or without prefix length, or a name."""
    text = str(_text(value))
    if _interface(text) is None and not _NAME.fullmatch(text):
        raise ValueError(f"is {text!r:.80}, must be an IP address or a name")
    return text


def _own(value: object) -> object:
    """Take an address with prefix length."""
    text = str(_text(value))
    if "/" not in text or _interface(text) is None:
        raise ValueError(
            f"is {text!r:.80}, must be an IP address with prefix length, such as 192.0.2.10/24"
        )
    return ip_interface(text)


def _hop(value: object) -> object:
    text = str(_text(value))
    if "/" in text or _interface(text) is None:
        raise ValueError(f"is {text!r:.80}, must be an IP address without prefix length")
    return ip_address(text)


def _interface(text: str) -> Interface | None:
    try:
        return None if "%" in text else ip_interface(text)
    except ValueError:
        return None


Text = Annotated[str, BeforeValidator(_text)]


class HostEntry(Params):
    """One host: how it is reached, and what a measurement may use there."""

    ssh: Text = Field(description="the host as OpenSSH knows it: a name, user@name or ssh:// URI")
    address: Annotated[str, BeforeValidator(_address)] = Field(
        description="where the other host reaches the tunnel's end: an IP address, or a name that "
        "is resolved on the other host; with prefix length it is also the end's own"
    )
    bind: Annotated[Interface, BeforeValidator(_own)] | None = Field(
        None,
        description="unused address with prefix length that the tunnel's end gets, in a namespace "
        "of its own; default: address. Behind NAT they differ",
    )
    interface: Text | None = Field(
        None, description="interface towards the line; default: that of the route to the other end"
    )
    attach: Literal["macvlan", "routed"] = Field(
        "macvlan",
        description="how the namespace joins the line: as its own station, or by a route that "
        "others already have to its address and that this host forwards",
    )
    gateway: Annotated[Address, BeforeValidator(_hop)] | None = Field(
        None,
        description="router to the other host's address, with macvlan, where both are not in one "
        "network",
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        (),
        max_length=_MOST_PORTS,
        description="ports that tunnels will use; hosts check tries them",
    )

    @field_validator("ssh")
    @classmethod
    def _destination(cls, value: str) -> str:
        # What begins with a minus would be an option of ssh's.
        if not _DESTINATION.fullmatch(value):
            raise ValueError("is not an ssh destination, such as user@name")
        return value

    @field_validator("interface")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        if value is not None and not _INTERFACE.fullmatch(value):
            raise ValueError("is not an interface name (15 characters at most)")
        return value

    @property
    def reached(self) -> Address | None:
        """Address by which the other host reaches the end; None: of a name it is known there."""
        found = _interface(self.address)
        return None if found is None else found.ip

    @property
    def own(self) -> Interface | None:
        """The end's own address, where the inventory says it."""
        return self.bind or (_interface(self.address) if "/" in self.address else None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.bind is not None and "/" in self.address:
            raise ValueError(
                f"address is {self.address}: with bind it is where the other host reaches the end, "
                "without prefix length"
            )
        versions = {one.version for one in self.literals()}
        if len(versions) > 1:
            raise ValueError("address, bind and gateway must be of one IP version")
        for ip in (self.reached, None if self.own is None else self.own.ip):
            if ip is not None:
                check_address(ip)
        if self.gateway is not None and self.attach == "routed":
            raise ValueError('gateway has no meaning with attach = "routed"')
        if self.gateway is not None and self.own is not None:
            check_gateway(self.gateway, self.own)
        return self

    def literals(self) -> Iterator[Address]:
        """Yield all addresses that are given as such."""
        own = None if self.own is None else self.own.ip
        yield from (one for one in (self.reached, own, self.gateway) if one is not None)


def check_address(ip: Address) -> None:
    """Raise ``ValueError`` for an address that no end on a line can have."""
    if ip.is_multicast or ip.is_loopback or ip.is_unspecified or ip.is_link_local:
        raise ValueError(f"address is {ip}, which no host on a line can have")
    if inside := next((one for one in _INSIDE if ip in one), None):
        raise ValueError(f"address is {ip}: {inside} is for the inside of tunnels here")


def check_gateway(gateway: Address, own: Interface) -> None:
    """Raise ``ValueError`` for a gateway that an end cannot reach."""
    # RFC 4861 section 6.3.4: routers of IPv6 are known by their link-local addresses.
    if gateway not in own.network and not (
        gateway.version == own.version and gateway.is_link_local
    ):
        raise ValueError(f"gateway is {gateway}, must be in the network {own.network}")


class Inventory(Params):
    """Two hosts and what may be sent between them."""

    client: HostEntry
    server: HostEntry
    max_rate: RateBitS | None = Field(
        None, description="most that a study may send each way, since others share the line"
    )
    ssh_config: Text | None = Field(
        None,
        description="OpenSSH configuration to use instead of the user's; a file beside the "
        "inventory",
    )

    def entry(self, role: Role) -> HostEntry:
        """Return the host of a role."""
        return self.client if role == "client" else self.server

    @property
    def ip(self) -> IpName:
        """IP version of the line: of the addresses, or IPv4 where there are only names."""
        found = [one for role in ROLES for one in self.entry(role).literals()]
        return "ipv6" if found and found[0].version == _IPV6 else "ipv4"

    @model_validator(mode="after")
    def _two(self) -> Self:
        literals = {role: list(self.entry(role).literals()) for role in ROLES}
        if len({one.version for found in literals.values() for one in found}) > 1:
            raise ValueError("client and server must have addresses of one IP version")
        own = {role: self.entry(role).own for role in ROLES}
        if own["client"] and own["server"] and own["client"].ip == own["server"].ip:
            raise ValueError(f"client and server have the same address, {own['client'].ip}")
        if self.client.ssh == self.server.ssh:
            raise ValueError(f"client and server are the same host, {self.client.ssh}")
        for role in ROLES:
            other = self.entry("server" if role == "client" else "client").reached
            if (ours := own[role]) is not None and other is not None:
                check_way(role, self.entry(role), ours, other)
        return self


def check_way(role: Role, entry: HostEntry, own: Interface, other: Address) -> None:
    """Raise ``ValueError`` if an end has no way to the other's address."""
    if entry.attach == "macvlan" and entry.gateway is None and other not in own.network:
        raise ValueError(f"{role}: the other host is not in {own.network}: a gateway is needed")


_IPV6: Final = 6


def load_inventory(path: Path) -> Inventory:
    """Read an inventory; ``StudyError`` with place, value and limit for what is wrong in it."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}") from error
    found = parse_inventory(data, str(path))
    if found.ssh_config is None:
        return found
    beside = path.resolve().parent / found.ssh_config
    if not beside.is_file():
        raise StudyError(f"{path}: ssh_config: {beside} is not a file")
    return found.model_copy(update={"ssh_config": str(beside)})


def parse_inventory(data: bytes, source: str) -> Inventory:
    """Parse an inventory; ``source`` is its name in errors."""
    if len(data) > MOST_BYTES:
        raise StudyError(f"{source}: is longer than {MOST_BYTES} bytes")
    try:
        document = toml.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise StudyError(f"{source}: byte {error.start} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{source}: {str(error)[:1].lower()}{str(error)[1:]}") from error
    try:
        return Inventory.model_validate(document)
    except ValidationError as error:
        raise StudyError(f"{source}: {_words(error)}") from None


def _words(error: ValidationError) -> str:
    """Return the first thing that is wrong: its place, and what must be there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    prefix = f"{place} " if place else ""
    match first["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is not a key of an inventory; known: {_known(first['loc'])}"
        case "value_error":
            words = str(first["ctx"]["error"])
            if not place:
                return words
            return f"{place}: {words}" if words.startswith(tuple(_KEYS)) else f"{prefix}{words}"
        case _:
            message = first["msg"]
            return f"{prefix}{message[:1].lower()}{message[1:]}, not {first['input']!r:.80}"


_KEYS: Final = (*Inventory.model_fields, *HostEntry.model_fields)


def _known(place: Sequence[object]) -> str:
    keys = HostEntry.model_fields if len(place) > 1 else Inventory.model_fields
    return ", ".join(keys)
