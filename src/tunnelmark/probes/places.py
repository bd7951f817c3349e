"""Where packets were lost: counters along the way, and every lost packet to one place. Pure.

Five places, each way: the sender's socket and stack, the queue of its interfaces (the tunnel's
and the link's), the queue of the link, the line itself, and the receiver (its interfaces, its
stack, the buffer of a socket).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PROC_FILES: Final = (
    "/proc/net/dev",
    "/proc/net/snmp",
    "/proc/net/snmp6",
    "/proc/net/xfrm_stat",
)
"""Where the kernel counts, by network namespace; one that is not there counts nothing."""
PLACES: Final = ("sender_socket", "sender_queue", "link_queue", "link_line", "receiver")
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class HostCounts:
    """What one host dropped since it was made, by place."""

    received_drops: Mapping[str, int] = field(default_factory=dict)
    """By interface: dropped, damaged or without room on arrival."""
    sent_drops: Mapping[str, int] = field(default_factory=dict)
    """By interface: its queueing discipline's and its own."""
    stack_sent_drops: int = 0
    """Packets that IPsec did not send."""
    stack_received_drops: int = 0
    """Packets that the stack or a socket's buffer did not take (InDiscards, InErrors),
    damaged ones included, and those that IPsec refused: replayed, of no SA, not authentic."""
    discards: int = 0
    """Packets that the stack could not hand on (OutDiscards), those of a full queue included."""
    send_errors: int = 0
    """Datagrams for which a socket had no room (SndbufErrors); of a full queue, too."""

    def since(self, earlier: "HostCounts", interfaces: Sequence[str]) -> "HostCounts":
        """Return what was dropped since, at these interfaces; one that was recreated counts 0."""
        return HostCounts(
            _grown(self.received_drops, earlier.received_drops, interfaces),
            _grown(self.sent_drops, earlier.sent_drops, interfaces),
            max(0, self.stack_sent_drops - earlier.stack_sent_drops),
            max(0, self.stack_received_drops - earlier.stack_received_drops),
            max(0, self.discards - earlier.discards),
            max(0, self.send_errors - earlier.send_errors),
        )

    def plus(self, other: "HostCounts") -> "HostCounts":
        """Return what two hosts of one role dropped."""
        return HostCounts(
            _added(self.received_drops, other.received_drops),
            _added(self.sent_drops, other.sent_drops),
            self.stack_sent_drops + other.stack_sent_drops,
            self.stack_received_drops + other.stack_received_drops,
            self.discards + other.discards,
            self.send_errors + other.send_errors,
        )


@dataclass(frozen=True)
class Assigned:
    """Every lost packet at one place or at none that is known."""

    lost: int
    by_place: Mapping[str, int]
    """By ``PLACES`` and ``UNKNOWN``; they add up to ``lost``."""
    dropped: Mapping[str, int]
    """What the counters of each place say, packets of others included."""


def assign(lost: int, dropped: Mapping[str, int]) -> Assigned:
    """Give each of ``lost`` packets a place, as far as the counters prove it.

    Counters do not show whose packets they counted. Where all places together dropped no more than
    was lost, all of it was the stream's. Where they dropped more (a fragment each, a keepalive, a
    load beside it), a place surely has what all other places together cannot have; the rest is
    unknown.
    """
    if lost < 0:
        raise ValueError(f"lost is {lost}, must be at least 0")
    seen = {place: max(0, dropped.get(place, 0)) for place in PLACES}
    total = sum(seen.values())
    if total <= lost:
        by_place = dict(seen)
    else:
        by_place = {
            place: min(count, max(0, lost - (total - count))) for place, count in seen.items()
        }
    by_place[UNKNOWN] = lost - sum(by_place.values())
    return Assigned(lost, by_place, seen)


def parse_counts(proc: str, qdiscs: str) -> HostCounts:
    """Parse what ``PROC_FILES`` say, one after the other, and ``tc -s -j qdisc``.

    What is not there, or not as proc(5) has it, counts 0: then the loss has no known place.
    """
    received: dict[str, int] = {}
    sent: dict[str, int] = {}
    stack: dict[str, int] = {}
    names: list[str] = []
    for line in proc.splitlines()[:_MOST_LINES]:
        words = line.replace(":", " : ").split()
        if len(words) == _DEV_WORDS and words[1] == ":" and _are_numbers(words[2:]):
            numbers = [int(word) for word in words[2:]]
            # errs, drop and fifo of each way (net/core/net-procfs.c)
            received[words[0]] = sum(numbers[2:5])
            sent[words[0]] = sum(numbers[10:13])
        elif len(words) > 2 and words[1] == ":":  # noqa: PLR2004 - a name, a colon, values
            if not _are_numbers(words[2:]):
                names = words
            elif names[:1] == words[:1] and len(names) == len(words):
                for name, word in zip(names[2:], words[2:], strict=True):
                    stack[f"{words[0]}{name}"] = int(word)
        elif len(words) == 2 and _are_numbers(words[1:]):  # noqa: PLR2004 - snmp6
            stack[words[0]] = int(words[1])
    for interface, drops in _qdisc_drops(qdiscs).items():
        sent[interface] = sent.get(interface, 0) + drops
    # Every counter of xfrm_stat that begins so is a packet that IPsec dropped (xfrm_proc.rst).
    return HostCounts(
        received,
        sent,
        sum(n for name, n in stack.items() if name.startswith("XfrmOut")),
        sum(n for name, n in stack.items() if name in _NOT_TAKEN or name.startswith("XfrmIn")),
        sum(stack.get(f"{ip}OutDiscards", 0) for ip in ("Ip", "Ip6")),
        sum(stack.get(f"{udp}SndbufErrors", 0) for udp in ("Udp", "Udp6")),
    )


def way_drops(
    sender: HostCounts,
    link: tuple[Mapping[str, Any], Mapping[str, Any]] | None,
    receiver: HostCounts,
) -> dict[str, int]:
    """Return what each place dropped one way; ``link`` are the emulator's counters then and now."""
    queue = sum(sender.sent_drops.values())
    # A datagram that a full queue drops is an OutDiscard and a SndbufError as well.
    others = max(0, max(sender.discards, sender.send_errors) - queue)
    drops = {
        "sender_socket": sender.stack_sent_drops + others,
        "sender_queue": queue,
        "receiver": sum(receiver.received_drops.values()) + receiver.stack_received_drops,
    }
    if link is not None:
        then, now = link
        for place, key in (("link_queue", "queue_dropped"), ("link_line", "lost")):
            drops[place] = int(now[key]) - int(then[key])
    return drops


_MOST_LINES: Final = 5000
_DEV_WORDS: Final = 18
# RFC 4113: InErrors counts those too for which a socket had no room, and damaged ones.
_NOT_TAKEN: Final = (
    *("IpInHdrErrors", "IpInDiscards", "UdpInErrors"),
    *("Ip6InHdrErrors", "Ip6InDiscards", "Udp6InErrors"),
)


def _are_numbers(words: Sequence[str]) -> bool:
    return all(word.lstrip("-").isdecimal() and len(word) <= 20 for word in words)  # noqa: PLR2004


def _qdisc_drops(text: str) -> dict[str, int]:
    """Return the drops of the root disciplines by interface."""
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return {}
    drops: dict[str, int] = {}
    for one in found if isinstance(found, list) else []:
        if not isinstance(one, dict) or not one.get("root"):
            continue
        name, count = one.get("dev"), one.get("drops")
        if isinstance(name, str) and isinstance(count, int) and count > 0:
            drops[name] = drops.get(name, 0) + count
    return drops


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _grown(
    now: Mapping[str, int], then: Mapping[str, int], interfaces: Sequence[str]
) -> dict[str, int]:
    return {name: max(0, now[name] - then.get(name, 0)) for name in set(interfaces) if name in now}
