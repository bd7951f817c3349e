"""Which addresses the two ends on a real line have, and by which they are reached."""

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tunnelmark.hosts.inventory import (
    ROLES,
    Address,
    HostEntry,
    Interface,
    Inventory,
    Role,
    check_address,
    check_gateway,
    check_way,
)
from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.lab.computers import Computer
from tunnelmark.model.errors import LabError
from tunnelmark.model.overhead import IP_SHOWN, IP_VERSIONS, IpName

_DATABASES: Final[Mapping[IpName, str]] = {"ipv4": "ahostsv4", "ipv6": "ahostsv6"}
_RESOLVE_LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class LineEnd:
    """One end on the line."""

    entry: HostEntry
    own: Interface
    """Its own address: to listen on and to send from."""
    reached: Address
    """Where the other end reaches it: of a name, what it is on the other host."""

    @property
    def behind_nat(self) -> bool:
        """Whether another address than its own leads to it."""
        return self.reached != self.own.ip

    @property
    def ip(self) -> IpName:
        """IP version of the line."""
        return "ipv4" if self.own.version == IP_VERSIONS["ipv4"] else "ipv6"

    def describe(self) -> str:
        """Return both addresses for the record of a run."""
        name = self.entry.address
        said = f"{name} is {self.reached}" if self.entry.reached is None else str(self.reached)
        return f"{said}, behind NAT at {self.own}" if self.behind_nat else said


Ends = Mapping[Role, LineEnd]


def find_ends(computers: Mapping[Role, Computer], inventory: Inventory) -> Ends:
    """Resolve names, each on the other host, and find the ends' own addresses.

    Raises ``LabError`` that names the end, the address and what to give.
    """
    reached = {
        role: inventory.entry(role).reached
        or _resolved(role, inventory, computers[other_role(role)].host)
        for role in ROLES
    }
    ends: dict[Role, LineEnd] = {}
    for role in ROLES:
        entry, there = inventory.entry(role), reached[other_role(role)]
        with _about(role):
            check_address(reached[role])
            own = entry.own or _own(computers[role].host, entry, reached[role], there)
            if entry.gateway is not None:
                check_gateway(entry.gateway, own)
        ends[role] = LineEnd(entry, own, reached[role])
    for role, end in ends.items():
        with _about(role):
            check_way(role, end.entry, end.own, reached[other_role(role)])
    if ends["client"].own.ip == ends["server"].own.ip:
        raise LabError(f"client and server have the same address, {ends['client'].own.ip}")
    return ends


def other_role(role: Role) -> Role:
    """Return the other of the two."""
    return "server" if role == "client" else "client"


def parent_name(computer: SshHost, entry: HostEntry, other: Address) -> str:
    """Return the host's interface towards the line; ``LabError`` if there is no route."""
    if entry.interface is not None:
        return entry.interface
    routes = ip_json(computer, ["route", "get", str(other)])
    name = next((str(route["dev"]) for route in routes if "dev" in route), None)
    if name is None:
        raise LabError(f"{computer.name}: there is no route to {other} (set interface)")
    return name


@contextmanager
def _about(role: Role) -> Iterator[None]:
    """Raise what is wrong with an end as ``LabError`` that names it."""
    try:
        yield
    except ValueError as error:
        words = str(error)
        raise LabError(words if words.startswith(role) else f"{role}: {words}") from None


def _resolved(role: Role, inventory: Inventory, on: SshHost) -> Address:
    """Return what a name is on the other host, in the line's IP version."""
    name = inventory.entry(role).address
    done = on.run(
        ["getent", _DATABASES[inventory.ip], name], timeout_s=_RESOLVE_LIMIT_S, check=False
    )
    for line in done.text().splitlines():
        try:
            found = ipaddress.ip_address(line.split()[0])
        except (ValueError, IndexError):
            continue
        # An IPv4 address as IPv6 has it (RFC 4291 section 2.5.5.2) is no answer.
        mapped = isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None
        if found.version == IP_VERSIONS[inventory.ip] and not mapped:
            return found
    version = IP_SHOWN[inventory.ip]
    raise LabError(f"{role}: address is {name}, which has no {version} address on {on.name}")


def _own(computer: SshHost, entry: HostEntry, reached: Address, other: Address) -> Interface:
    """Return the end's own address where the inventory has only the one that leads to it."""
    if entry.attach == "routed":
        return ipaddress.ip_interface(str(reached))
    name = parent_name(computer, entry, other)
    taken = list(_addresses(computer, name))
    if any(one.ip == reached for one in taken):
        raise LabError(
            f"{computer.name}: address is {reached}, which {name} has itself: the tunnel's end "
            "needs one that is unused"
        )
    for one in taken:
        if reached in one.network:
            return ipaddress.ip_interface(f"{reached}/{one.network.prefixlen}")
    raise LabError(
        f"{computer.name}: address is {reached}, which is in no network of {name}: behind NAT "
        "give bind, the end's own address with prefix length"
    )


def _addresses(computer: SshHost, interface: str) -> Iterator[Interface]:
    families = ("inet", "inet6")
    for link in ip_json(computer, ["address", "show", "dev", interface]):
        for one in link.get("addr_info", ()):
            if one.get("family") in families and one.get("scope") == "global":
                yield ipaddress.ip_interface(f"{one['local']}/{one['prefixlen']}")


def ip_json(host: SshHost, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return what ``ip -json`` says; empty if it fails."""
    done = host.run(["ip", "-json", *words], check=False)
    try:
        found = json.loads(done.stdout or b"[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
