"""Which program each tunnel of a report was, how many clients it had, what it copies; pure.

A figure of "wireguard" is that of the program that ran: wireguard-go of 2022 costs several times
what the kernel's WireGuard does.
"""

from collections.abc import Iterable
from typing import Final

from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import PROBE_CLASS, BlockRecord, WireProof
from tunnelmark.model.tunnel import CARRIER_CONGESTION, DataPath, Negotiated

_WHERE = {
    DataPath.USER_SPACE: "in user space",
    DataPath.KERNEL: "in the kernel",
    DataPath.KERNEL_THREADS: "in the kernel",
    DataPath.LINK: "in the link itself",
}


def programs(blocks: Iterable[BlockRecord]) -> tuple[str, ...]:
    """Return a line for each tunnel: name, program, version, where it handles packets, and more.

    That is the number of clients, and whether its own packets have the traffic class of what they
    carry.

    A tunnel that ran as several programs (another one over another link) has them all.
    """
    found: dict[str, dict[str, None]] = {}
    for block in blocks:
        for agreed in block.negotiated:
            known = found.setdefault(shown_name(block.tunnel, block), {})
            words = _words(agreed)
            known[words + (_copied(block) if words else "")] = None
    return tuple(f"{name}: {' and '.join(words)}" for name, words in found.items() if any(words))


def _words(agreed: Negotiated) -> str:
    if not agreed.version:
        return ""
    where = f" {_WHERE[agreed.data_path]}" if agreed.data_path is not None else ""
    own = agreed.implementation
    named = own.lower() in agreed.version.lower() or own in set(DataPath)
    clients = f", {many}" if (many := agreed.details.get("clients")) else ""
    carrier = f", over TCP with {name}" if (name := agreed.details.get(CARRIER_CONGESTION)) else ""
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
    return f", {_COPIED[dscp, ecn]} to the packets on the link"


def _classes(proofs: Iterable[WireProof]) -> set[int | None]:
    return {proof.traffic_class for proof in proofs if proof.ok}


_ECN_BITS: Final = 2
_ECN: Final = 0b11
_COPIED: Final = {
    (True, True): "DSCP and ECN copied",
    (True, False): "DSCP but not ECN copied",
    (False, True): "ECN but not DSCP copied",
    (False, False): "neither DSCP nor ECN copied",
}
