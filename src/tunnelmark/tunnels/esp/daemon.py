"""IKE daemons, whichever program: started, asked, watched, and their associations awaited."""

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.together import together
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.esp.sas import IkeSa
from tunnelmark.tunnels.support import Watched, check_socket, wait_until

_START_LIMIT_S: Final = 30.0
_LOG_LINES: Final = 400
# RFC 7296 section 3.10.1: what another attempt of the same peers ends with again.
_DISAGREED: Final = re.compile(
    r"AUTHENTICATION_FAILED|NO_PROPOSAL_CHOSEN|TS_UNACCEPTABLE|INVALID_KE_PAYLOAD"
)
_SETTLE_LIMIT_S: Final = 15.0
_SETTLE_POLL_S: Final = 0.2


class IkeDaemon(ABC):
    """One IKE daemon on one host, with files of its own; a subclass starts it as ``process``."""

    program: ClassVar[str]
    """What error messages call it."""
    readiness: ClassVar[str]
    """What it must do before it takes commands, for messages: ``listen``."""
    ready_words: ClassVar[str]
    """What its log says when it has done that."""
    process: Process

    def __init__(self, side: Side, host: Host, *, folder: str, socket: str) -> None:
        """Choose a folder for it, begun by a name, and the place of its control socket there."""
        self.side = side
        self.host = host
        self._folder = host.work_dir / unique_name(folder)
        self._socket = self._folder / socket
        check_socket(f"{self.program} on {host.name}", self._socket)

    @abstractmethod
    def initiate(self, child: str, *, limit_s: int, peer: "IkeDaemon") -> None:
        """Bring one child up; raise as ``_not_established`` does."""

    @abstractmethod
    def sas(self) -> tuple[IkeSa, ...]:
        """Return the security associations as it sees them."""

    @abstractmethod
    def version(self) -> str:
        """Return its name and version."""

    @abstractmethod
    def words(self, log: str) -> str:
        """Return the line of a log that says best what went wrong."""

    @property
    def place(self) -> str:
        """How error messages call it."""
        return f"{self.program} of the {self.side} on {self.host.name}"

    def wait_ready(self) -> None:
        """Wait until it takes commands."""

        def ready() -> bool | None:
            self.require_alive(self.readiness)
            return True if self.ready_words in self.process.log_tail(_LOG_LINES) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"{self.place} did not {self.readiness} within {_START_LIMIT_S:g} s: "
                f"{self.last_words()}"
            ),
        )

    def last_words(self) -> str:
        """Return the line of its log that says best what went wrong."""
        return self._words_of(self.process)

    def require_alive(self, what: str, peer: "IkeDaemon | None" = None) -> None:
        """Raise ``TunnelError`` if it has ended."""
        if (status := self.process.poll()) is not None:
            more = f"; last messages of the {peer.side}: {peer.last_words()}" if peer else ""
            raise TunnelError(
                f"{self.place} ended with status {status} before it could {what}: "
                f"{self.last_words()}{more}"
            )

    def watched(self, interface: str) -> Watched:
        """Return what must stay for a tunnel behind this interface to be well."""
        return Watched(self.host, interface, self.process, self._words_of)

    def stop(self) -> None:
        """End it; what it put into the kernel goes with it, or by ``flush``."""
        self.process.stop()

    def _not_established(self, child: str, reason: str, peer: "IkeDaemon") -> TunnelError:
        """Return the error of a child that did not come up, with both last messages.

        Raises one instead if either daemon has ended.
        """
        self.require_alive(f"establish {child}", peer)
        peer.require_alive(f"establish {child}", self)
        words = (reason, self.last_words(), peer.last_words())
        error = RefusedError if any(map(_DISAGREED.search, words)) else TunnelError
        return error(
            f"{self.place} could not establish {child} ({words[0]}); last messages of the "
            f"{self.side}: {words[1]}; of the {peer.side}: {words[2]}"
        )

    def _words_of(self, process: Process) -> str:
        return self.words(process.log_tail(_LOG_LINES))


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
