"""Which program each tunnel of a report was, how many clients it had, what it copies; pure.

A figure of "wireguard" is that of the program that ran: wireguard-go of 2022 costs several times
what the kernel's WireGuard does.
"""

from collections.abc import Iterable
from typing import Final

from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import PROBE_CLASS, BlockRecord, WireProof
from tunnelmark.model.tunnel import CARRIER_CHOSEN_BY, CARRIER_CONGESTION, DataPath, Negotiated

_WHERE = {
    DataPath.USER_SPACE: "in user space",
    DataPath.KERNEL: "in the kernel",
    DataPath.KERNEL_THREADS: "in the kernel",
    DataPath.LINK: "in the link itself",
}


def programs(blocks: Iterable[BlockRecord]) -> tuple[str, ...]:
    """Return a line for each tunnel: name, program, version, where it handles packets, clients.

    A tunnel that ran as several programs (another one over another link) has them all. Behind them
    is a line for each way in which tunnels treat the traffic class of what they carry.
    """
    found: dict[str, dict[str, None]] = {}
    copied: dict[str, set[str]] = {}
    for block in blocks:
        name = shown_name(block.tunnel, block)
        words = found.setdefault(name, {})
        words.update(dict.fromkeys(_words(one) for one in block.negotiated))
        if any(words) and (way := _copied(block)):
            copied.setdefault(way, set()).add(name)
    named = {name: " and ".join(filter(None, words)) for name, words in sorted(found.items())}
    return (
        *(f"{name}: {words}" for name, words in named.items() if words),
        *(
            f"{way} to the packets on the link: {', '.join(sorted(copied[way]))}"
            for way in _COPIED.values()
            if way in copied
        ),
    )


def _words(agreed: Negotiated) -> str:
    if not agreed.version:
        return ""
    where = f" {_WHERE[agreed.data_path]}" if agreed.data_path is not None else ""
    own = agreed.implementation
    named = own.lower() in agreed.version.lower() or own in set(DataPath)
    clients = f", {many}" if (many := agreed.details.get("clients")) else ""
    details = agreed.details
    by_kernel = " (the kernel's default)" * (details.get(CARRIER_CHOSEN_BY) == "kernel")
    name = details.get(CARRIER_CONGESTION)
    # Shadowsocks carries datagrams as such.
    both = "UDP and over " * (details.get("transport") == "tcp and udp")
    carrier = f", over {both}TCP with {name}{by_kernel}" if name else ""
    return f"{agreed.version}{'' if named else f' ({own})'}{where}{carrier}{clients}"


def _copied(block: BlockRecord) -> str:
    """Return what of DSCP and ECN is on the link as the packets inside had it, if that was seen.

    The baseline's probes show whether the client can set them at all.
    """
    inside, outside = _classes(block.baseline_proofs), _classes(block.proofs)
    if inside != {PROBE_CLASS} or len(outside) != 1:
        return ""
    (seen,) = outside
    if seen is None:
        return ""
    dscp, ecn = seen >> _ECN_BITS == PROBE_CLASS >> _ECN_BITS, seen & _ECN == PROBE_CLASS & _ECN
    return _COPIED[dscp, ecn]


def _classes(proofs: Iterable[WireProof]) -> set[int | None]:
    return {proof.traffic_class for proof in proofs if proof.ok}


_ECN_BITS: Final = 2
_ECN: Final = 0b11
_COPIED: Final = {
    (True, True): "DSCP and ECN copied",
    (True, False): "DSCP but not ECN copied",
    (False, True): "ECN but not DSCP copied",
    (False, False): "Neither DSCP nor ECN copied",
}
