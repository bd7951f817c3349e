"""What a tunnel of ESP asks of an IKE daemon at one of its ends."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from tunnelmark.model.host import Process
from tunnelmark.model.together import together
from tunnelmark.tunnels.ike_sas import IkeSa

_SETTLE_LIMIT_S: Final = 15.0
_SETTLE_POLL_S: Final = 0.2


class IkeDaemon(Protocol):
    """One IKE daemon on one host."""

    process: Process

    @property
    def place(self) -> str:
        """How error messages call it."""
        ...

    def wait_ready(self) -> None:
        """Wait until it takes commands."""
        ...

    def sas(self) -> tuple[IkeSa, ...]:
        """Return the security associations as it sees them."""
        ...

    def version(self) -> str:
        """Return its name and version."""
        ...

    def last_words(self) -> str:
        """Return the line of its log that says best what went wrong."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


def settled_sas(
    ends: Sequence[tuple[IkeDaemon, Collection[str]]],
) -> tuple[tuple[str, tuple[IkeSa, ...]], ...]:
    """Return (place, associations) of each end once all its children are installed.

    ``ends`` are daemons, each with the names of the children that it must have. With IKEv1 the
    server still waits for the last message when the client is done already (RFC 2409 section 5.5).
    After a limit what there is is returned, to be judged.
    """
    deadline = time.monotonic() + _SETTLE_LIMIT_S
    while True:
        last = time.monotonic() >= deadline
        found = _listed([daemon for daemon, _ in ends])
        # Two of a name: keys are being changed, the old association goes in a moment.
        if last or all(
            _has_each(sas, names) for (_, names), (_, sas) in zip(ends, found, strict=True)
        ):
            return found
        time.sleep(_SETTLE_POLL_S)


_AT_ONCE: Final = 8
"""So many daemons are asked at a time: each takes a process."""


def _listed(daemons: Sequence[IkeDaemon]) -> tuple[tuple[str, tuple[IkeSa, ...]], ...]:
    sas: list[tuple[IkeSa, ...]] = []
    for start in range(0, len(daemons), _AT_ONCE):
        sas += together(*(one.sas for one in daemons[start : start + _AT_ONCE]))
    return tuple(zip((daemon.place for daemon in daemons), sas, strict=True))


def _has_each(sas: Sequence[IkeSa], names: Collection[str]) -> bool:
    installed = Counter(
        child.name for ike in sas for child in ike.children if child.state == "INSTALLED"
    )
    return all(installed[name] == 1 for name in names)
