"""Which program each tunnel of a report was, and how many clients it had; pure.

A figure of "wireguard" is that of the program that ran: wireguard-go of 2022 costs several times
what the kernel's WireGuard does.
"""

from collections.abc import Iterable

from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.tunnel import CARRIER_CONGESTION, DataPath, Negotiated

_WHERE = {
    DataPath.USER_SPACE: "in user space",
    DataPath.KERNEL: "in the kernel",
    DataPath.KERNEL_THREADS: "in the kernel",
    DataPath.LINK: "in the link itself",
}


def programs(blocks: Iterable[BlockRecord]) -> tuple[str, ...]:
    """Return a line for each tunnel: name, program, version, where it handles packets, clients.

    A tunnel that ran as several programs (another one over another link) has them all.
    """
    found: dict[str, dict[str, None]] = {}
    for block in blocks:
        for agreed in block.negotiated:
            known = found.setdefault(shown_name(block.tunnel, block), {})
            known[_words(agreed)] = None
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
