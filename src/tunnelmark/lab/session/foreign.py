"""Whether anything but the tunnel went over the link in a trial, by the emulator's own count.

The proof by wire looks at every byte, but only at the start. The emulator sees every frame of every
trial and counts them by what their headers say: a datagram in the clear (a security association
that was lost, a route that moved) is one of a kind that the tunnel does not have.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.model.tunnel import WireRule
from tunnelmark.model.validity import Check
from tunnelmark.probes.judge import CONTROL_MESSAGES

_IP: Final = {0x0800: 4, 0x86DD: 6}
_ARP: Final = 0x0806
_TCP, _UDP, _ICMP, _IGMP, _ICMPV6 = 6, 17, 1, 2, 58


def foreign_check(
    before: LinkCounters | None, after: LinkCounters | None, rules: Sequence[WireRule]
) -> list[Check]:
    """Judge what passed between two readings: by one of ``rules``, or control of the link itself.

    No check where the medium does not count by kind (radios, whose proof is on air).
    """
    if before is None or after is None:
        return []
    found: dict[str, int] = {}
    for way in ("forward", "reverse"):
        then, now = (getattr(counters, way).get("kinds") for counters in (before, after))
        if then is None or now is None:
            return []
        for kind, frames in _grown(then, now):
            if not any(_allowed(kind, rule) for rule in rules) and not _is_control(kind):
                words = f"{_describe(kind)} ({way})"
                found[words] = found.get(words, 0) + frames
        if (others := int(now["others"]) - int(then["others"])) > 0:
            found[f"of further kinds ({way})"] = others
    total = sum(found.values())
    expected = " or ".join(rule.describe for rule in rules)
    first = next(iter(found), "")
    return [
        Check(
            "link_foreign",
            ok=not total,
            message=f"{total} frames on the link were not {expected}, the first {first}"
            if total
            else f"every frame on the link was {expected}",
            value=float(total),
            limit=0.0,
            unit="frame",
        )
    ]


_Kind = tuple[int, int, tuple[int, int], bool]
"""Type of the frame, IP protocol, ports, whether it is a later fragment."""


def _grown(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[_Kind, int]]:
    old = {_kind(one): int(one["frames"]) for one in then["counted"]}
    grown = ((_kind(one), int(one["frames"])) for one in now["counted"])
    return [(kind, more) for kind, frames in grown if (more := frames - old.get(kind, 0)) > 0]


def _kind(one: Mapping[str, Any]) -> _Kind:
    low, high = one["ports"]
    return (
        int(one["ether_type"]),
        int(one["protocol"]),
        (int(low), int(high)),
        bool(one["later_fragment"]),
    )


def _allowed(kind: _Kind, rule: WireRule) -> bool:
    ether_type, protocol, ports, later = kind
    if ether_type in rule.ether_types:
        return True
    version = _IP.get(ether_type)
    if version is None or rule.ip_version not in {None, version}:
        return False
    if protocol not in rule.ip_protocols:
        return False
    wanted = {_UDP: rule.udp_ports, _TCP: rule.tcp_ports}.get(protocol, ())
    # A later fragment has no ports; its first one is counted for itself.
    return not wanted or later or bool({*ports} & {*wanted})


def _is_control(kind: _Kind) -> bool:
    ether_type, protocol, (message, _), _ = kind
    return (
        ether_type == _ARP
        or protocol == _IGMP
        or message in CONTROL_MESSAGES.get(protocol, frozenset())
    )


def _describe(kind: _Kind) -> str:
    ether_type, protocol, ports, later = kind
    if ether_type not in _IP:
        return f"of type 0x{ether_type:04x}"
    if protocol in {_TCP, _UDP}:
        name = "TCP" if protocol == _TCP else "UDP"
        where = "a later fragment" if later else f"port {' and '.join(str(p) for p in ports if p)}"
        return f"{name}, {where}"
    return {_ICMP: "ICMP", _ICMPV6: "ICMPv6"}.get(protocol, f"IP protocol {protocol}")
