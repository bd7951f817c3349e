"""Programs that ask and that nobody starts: what virtual time is asked for, and gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunnelmark.engine.transactions import AskSummary
from tunnelmark.model.tunnel import TrafficPath


@dataclass(frozen=True)
class Exchange:
    """A request and the reply to it."""

    request: tuple[int, ...]
    """Bytes of the pieces in which it is written."""
    reply: tuple[int, ...] = ()
    """Likewise; without any the client goes on at once."""
    goes_on: bool = False
    """The client goes on without the reply; of what a connection begins with only."""
    readable_bytes: int = 0
    """So much of the reply has to be there before its begin can be read; 0: its first segment."""
    held: bool = False
    """Each piece waits until what was written before it is acknowledged (Nagle, RFC 896)."""
    ahead: int = 0
    """It is begun when so many of those before it on its connection are under way at most."""
    due_ns: int = 0
    """It is begun no earlier than this after the first reply on its connection began to come."""
    request_due_ns: tuple[int, ...] = ()
    """When each piece leaves at the earliest, after it was written; empty: at once."""
    reply_due_ns: tuple[int, ...] = ()
    """Likewise."""


@dataclass(frozen=True)
class Turns:
    """How replies share a connection whose server seals what it writes in records.

    What is in a record can be read when all of it is there.
    """

    turn_bytes: int
    """So much of a reply goes before the next one has its turn."""
    record_bytes: int
    """What a record carries at most. One that has less leaves when there is nothing more."""
    seal_bytes: int
    """What a record adds."""


@dataclass(frozen=True)
class Stage:
    """Exchanges after which, when all are over, a client goes on."""

    exchanges: tuple[Exchange, ...]
    connections: int = 1
    """Simultaneous ones, at most; each takes the next exchange when it has none."""
    opening: tuple[Exchange, ...] = ()
    """What each connection begins with."""
    wait_ns: int = 0
    """Before it begins."""
    fresh: bool = False
    """Each exchange has a connection of its own."""
    awaits_close: bool = False
    """The server closes the connection behind its reply, which is over with that."""
    opening_counts: bool = True
    """Opening a connection is a part of its first exchange."""
    lasts_ns: int | None = None
    """The exchanges are begun again and again for so long; None: once."""
    turns: Turns | None = None
    """Replies that the server has at the same time take turns on their connection, whose requests
    fill segments up; None: each is written as a whole."""


@dataclass(frozen=True)
class Client:
    """A program on the client that asks one on the server over TCP."""

    path: TrafficPath
    stages: tuple[Stage, ...]
    congestion: str | None
    """None: the default."""
    patience_ns: int
    """It gives up when it has heard nothing for so long."""
    limit_ns: int
    """It gives up after this time."""
    count: int = 1
    """So many alike."""


@dataclass(frozen=True)
class Requester:
    """One that asks over UDP: a request, the answer to it or none in time, the next request."""

    path: TrafficPath
    request_bytes: int
    response_bytes: int
    lasts_ns: int
    """How long requests are begun."""
    timeout_ns: int
    """How long an answer is waited for."""
    count: int = 1
    """So many alike."""


@dataclass(frozen=True)
class Exchanged:
    """An exchange that came to its end, with times of one clock in nanoseconds."""

    stage: int
    place: int
    """Among the exchanges of its stage."""
    began_ns: int
    connected_ns: int | None
    """When its connection was there; None: it was there before."""
    opened_ns: int | None
    """When what that begins with was done."""
    first_ns: int
    """When the reply began to come."""
    done_ns: int


@dataclass(frozen=True)
class ClientEnd:
    """What became of the clients that are alike."""

    gave_up: int
    """How many of them: the others came to the end of their stages."""
    exchanges: tuple[Exchanged, ...]
    """Of stages that have them once, in the order of their ends."""
    retransmits: int
    timeouts: int
    stopped: int = 0
    """How many were ended before, as loads that are not needed any more."""


@dataclass(frozen=True)
class ClientEnds:
    """What became of all."""

    clients: tuple[ClientEnd, ...]
    """Those over TCP."""
    asked: AskSummary
    """Of the exchanges as transactions, a flow for each client."""


CarryClients = Callable[[Sequence[Client] | Sequence[Requester]], ClientEnds]
"""Lets clients run together, all of one kind; ``LabError`` if none could."""
