"""How a network namespace of a host over SSH is on the real line, without a change to the host's.

What is made on the host's side is one interface, named after the run; with it go the route to it
and all else that was set. The namespace has an address of its own, so that what tunnels flush,
route and filter is never the host's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from tunnelmark.hosts.inventory import Role
from tunnelmark.hosts.ssh_host import SshHost, SshNetnsHost
from tunnelmark.lab.ip import ip_batch
from tunnelmark.lab.line_ends import LineEnd, ip_json, parent_name
from tunnelmark.model.errors import LabError
from tunnelmark.model.overhead import IpName

ON_LINE: Final = "eth0"
FORWARDING: Final[Mapping[IpName, str]] = {
    "ipv4": "net.ipv4.ip_forward",
    "ipv6": "net.ipv6.conf.all.forwarding",
}
"""Switch of a kernel that forwards."""
_HOP: Final[Mapping[IpName, str]] = {"ipv4": "169.254.77.1", "ipv6": "fe80::77:1"}
"""The host as its namespace sees it (RFC 3927, RFC 4291): a name, which no interface has."""
_WHOLE: Final[Mapping[IpName, int]] = {"ipv4": 32, "ipv6": 128}
_ASKS: Final[Mapping[IpName, str]] = {"ipv4": "ARP", "ipv6": "neighbour discovery"}
_ROLE_BYTE: Final[Mapping[Role, int]] = {"client": 0xC0, "server": 0x50}


@dataclass(frozen=True)
class Parent:
    """The host's own interface towards the line."""

    name: str
    mtu_bytes: int


def parent_of(computer: SshHost, end: LineEnd, other: LineEnd) -> Parent:
    """Return the interface of an entry, or that of the route; ``LabError`` if there is none."""
    name = parent_name(computer, end.entry, other.reached)
    links = ip_json(computer, ["link", "show", "dev", name])
    if not links:
        raise LabError(f"{computer.name}: there is no interface {name}")
    return Parent(name, int(links[0]["mtu"]))


def forwards(computer: SshHost, ip: IpName) -> bool:
    """Say whether a host forwards packets."""
    path = PurePosixPath("/proc/sys", *FORWARDING[ip].split("."))
    return computer.get(path).strip() == b"1"


def attach(
    computer: SshHost,
    inside: SshNetnsHost,
    end: LineEnd,
    role: Role,
    *,
    parent: Parent,
    interface: str = ON_LINE,
    mtu_bytes: int,
) -> str:
    """Put ``interface`` of a namespace on the line and return its MAC; it is not addressed yet.

    Raises ``LabError`` with what the host lacks.
    """
    if mtu_bytes > parent.mtu_bytes:
        raise LabError(
            f"{role}: the link's MTU is {mtu_bytes}, {parent.name} carries {parent.mtu_bytes}"
        )
    mac = mac_of(computer.unique, role)
    own = f"{computer.unique[:7]}-{role[0]}"
    to = ["netns", str(inside.holder_pid)]
    if end.entry.attach == "macvlan":
        words = ["link", parent.name, "name", interface, "mtu", str(mtu_bytes), "address", mac]
        made = computer.run(
            ["ip", "link", "add", *words, *to, "type", "macvlan", "mode", "bridge"], check=False
        )
        if made.returncode != 0:
            raise LabError(
                f"{role}: {parent.name} takes no second station: {made.last_words()} "
                '(attach = "routed" needs none)'
            )
        return mac
    if not forwards(computer, end.ip):
        raise LabError(
            f"{role}: does not forward, which routed addresses need "
            f"(sysctl -w {FORWARDING[end.ip]}=1)"
        )
    mtu = ["mtu", str(mtu_bytes)]
    peer = ["peer", "name", interface, *mtu, "address", mac, *to]
    computer.run(["ip", "link", "add", "name", own, *mtu, "type", "veth", *peer])
    # Of this interface alone, which goes with the run. It needs no address of its own.
    settings = ("addr_gen_mode=1",) if end.ip == "ipv6" else ("disable_ipv6=1",)
    words = [f"net.ipv6.conf.{own}.{setting}" for setting in settings]
    computer.run(["sysctl", "-eqw", *words], check=False)
    address = end.own.ip
    ip_batch(
        computer,
        [
            f"link set dev {own} address {_hop_mac(mac)} arp off multicast off up",
            f"route add {address}/{_WHOLE[end.ip]} dev {own}",
            f"neighbour replace {address} lladdr {mac} dev {own} nud permanent",
        ],
    )
    return mac


def address(host: SshNetnsHost, end: LineEnd, mac: str, *, interface: str = ON_LINE) -> None:
    """Give an interface the address of an end and the way to the other one."""
    settings = _QUIET if end.ip == "ipv6" else ("disable_ipv6=1",)
    # A kernel without IPv6 has no IPv6 settings, and needs none (-e).
    words = [f"net.ipv6.conf.{interface}.{setting}" for setting in settings]
    host.run(["sysctl", "-eqw", *words], check=False)
    # Neighbour discovery asks by multicast (RFC 4861 section 4.3), ARP by broadcast.
    multicast = "on" if end.ip == "ipv6" else "off"
    lines = [f"link set dev {interface} address {mac} multicast {multicast} up"]
    no_dad = " nodad" if end.ip == "ipv6" else ""
    if end.entry.attach == "macvlan":
        lines.append(f"address add {end.own} dev {interface}{no_dad}")
        if end.entry.gateway is not None:
            lines.append(f"route add default via {end.entry.gateway} dev {interface}")
    else:
        hop, whole = _HOP[end.ip], _WHOLE[end.ip]
        lines += [
            f"address add {end.own.ip}/{whole} dev {interface}{no_dad}",
            f"route add {hop}/{whole} dev {interface} scope link",
            f"neighbour replace {hop} lladdr {_hop_mac(mac)} dev {interface} nud permanent",
            f"route add default via {hop} dev {interface}",
        ]
    ip_batch(host, lines)


_QUIET: Final = ("disable_ipv6=0", "accept_dad=0", "accept_ra=0", "router_solicitations=0")
"""What IPv6 sends or takes by itself on an interface that has only the address it is given."""


def settle(
    host: SshNetnsHost,
    end: LineEnd,
    other: LineEnd,
    *,
    interface: str = ON_LINE,
    wait_s: int = 3,
) -> str | None:
    """Find out who is next on the line, keep it, and return its MAC: no trial then has an ARP.

    None where that is known without asking. Raises ``LabError`` if nobody answers.
    """
    if end.entry.attach == "routed":
        return None
    hop = next_hop(end, other)
    # Whether the echo comes back is not asked here: a firewall may keep it.
    host.run(
        ["ping", "-c", "1", "-W", str(wait_s), str(other.reached)],
        timeout_s=wait_s + 10.0,
        check=False,
    )
    for one in ip_json(host, ["neighbour", "show", hop, "dev", interface]):
        if isinstance(mac := one.get("lladdr"), str):
            keep(host, hop, mac, interface=interface)
            return mac
    who = "the gateway" if hop == str(end.entry.gateway) else "the other end"
    raise LabError(f"{host.name}: {who}, {hop}, does not answer {_ASKS[end.ip]} on the line")


def next_hop(end: LineEnd, other: LineEnd) -> str:
    """Return the neighbour to which packets for the other end go first."""
    near = other.reached in end.own.network
    return str(other.reached if near else end.entry.gateway)


def keep(host: SshNetnsHost, hop: str, mac: str, *, interface: str = ON_LINE) -> None:
    """Have a neighbour known for good."""
    ip_batch(host, [f"neighbour replace {hop} lladdr {mac} dev {interface} nud permanent"])


def mac_of(unique: str, role: Role) -> str:
    """Return a locally administered address that no other run has: of its name and the role."""
    number = int(unique[2:7], 16)
    octets = (0x02, 0x74, _ROLE_BYTE[role] | number >> 16, number >> 8 & 0xFF, number & 0xFF, 0x01)
    return ":".join(f"{octet:02x}" for octet in octets)


def _hop_mac(mac: str) -> str:
    return f"{mac[:-2]}02"
