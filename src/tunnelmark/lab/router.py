"""The router between link and server: forwards, and translates addresses if it is to."""

from typing import Final

from tunnelmark.lab.ip import ip_batch
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host
from tunnelmark.model.topology import (
    LINK_PREFIX_IPV4,
    LINK_PREFIX_IPV6,
    MACS,
    OUTSIDE_ROUTER_IPV4,
    OUTSIDE_ROUTER_IPV6,
    ROUTER_IPV4,
    ROUTER_IPV6,
)

_SIDES: Final = (
    ("eth0", "router", ROUTER_IPV4, ROUTER_IPV6),
    ("eth1", "outside", OUTSIDE_ROUTER_IPV4, OUTSIDE_ROUTER_IPV6),
)
_SYSCTLS: Final = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.all.accept_dad=0",
)
# As a home router does it: what goes out has its address, from a port of its own; what comes back
# is distinguished by it. GRE has no ports: without a helper one client at a time gets it back.
_NAT: Final = b"""\
table ip tm {
  chain out {
    type nat hook postrouting priority srcnat
    oifname "eth1" masquerade
  }
}
"""


# It reads the calls that a control connection agrees on, and their GRE then comes back.
_PPTP_HELPER: Final = b"""\
table ip tm {
  ct helper pptp { type "pptp" protocol tcp; }
  chain helpers {
    type filter hook prerouting priority filter
    tcp dport 1723 ct helper set "pptp"
  }
}
"""
_PPTP_MODULES: Final = ("nf_conntrack_pptp", "nf_nat_pptp")


def set_up(router: Host, *, neighbours: dict[str, dict[str, str]], nat: bool) -> frozenset[str]:
    """Address the router's two sides and let it forward; return the helpers that its NAT has.

    ``neighbours`` are addresses at each interface with their MAC. Raises ``LabError`` where the
    kernel or a program for NAT is missing.
    """
    router.run(["sysctl", "-eqw", *_SYSCTLS], check=False)
    for interface, mac, ipv4, ipv6 in _SIDES:
        lines = [
            f"link set {interface} address {MACS[mac]}",
            f"link set {interface} arp on multicast off",
            f"address add {ipv4}/{LINK_PREFIX_IPV4} dev {interface}",
            f"link set {interface} up",
        ]
        lines_ipv6 = [f"address add {ipv6}/{LINK_PREFIX_IPV6} dev {interface} nodad"]
        for number, lladdr in neighbours[interface].items():
            (lines_ipv6 if ":" in number else lines).append(
                f"neighbour replace {number} lladdr {lladdr} dev {interface} nud permanent"
            )
        ip_batch(router, lines)
        ip_batch(router, lines_ipv6, check=False)
    return _translate(router) if nat else frozenset()


def _translate(router: Host) -> frozenset[str]:
    if router.has("nft") is None:
        raise LabError("the router with NAT needs nft (apt-get install nftables)")
    if words := _refused(router, "nat", _NAT):
        raise LabError(f"the router cannot do NAT, the kernel refuses it: {words}")
    for module in _PPTP_MODULES:
        router.run(["modprobe", "-q", module], check=False)
    return frozenset() if _refused(router, "pptp", _PPTP_HELPER) else frozenset({"pptp"})


def _refused(router: Host, name: str, rules: bytes) -> str | None:
    """Give the kernel some rules; return its last words where it does not take them."""
    file = router.work_dir / f"{name}.nft"
    router.put(file, rules)
    done = router.run(["nft", "-f", str(file)], check=False)
    return None if done.returncode == 0 else done.last_words()
