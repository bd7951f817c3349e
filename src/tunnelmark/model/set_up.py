"""One set-up of a tunnel over the study's link: how long it took and what it sent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sent:
    """IP packets that one end put on the link, those that the link then lost included."""

    packets: int
    octets: int
    """From the first byte of each IP header on."""


@dataclass(frozen=True)
class SetUp:
    """One attempt to bring a tunnel up."""

    took_ns: int | None
    """From the start of the client to the first reply through the tunnel; None: it failed."""
    forward: Sent | None
    """What the client sent; None where nothing counts it."""
    reverse: Sent | None
    reason: str = ""
    """Why it failed, in the words of the tunnel's program."""


Again = Callable[[float], SetUp]
"""Takes the tunnel down and brings it up again, within so many seconds."""


class Joining(Protocol):
    """Clients of a gateway that leave and join again while the others stay."""

    def leave(self, number: int) -> None:
        """End one of the clients."""

    def join(self, number: int, limit_s: float) -> Callable[[], SetUp]:
        """Start a client that left; what is returned waits until it has joined, on any thread.

        Only its time is in what comes of it: the link carries the others' packets, too. Both
        raise ``TunnelmarkError`` where something other than the joining failed.
        """
