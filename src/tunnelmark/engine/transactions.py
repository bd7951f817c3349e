"""Configurations and summaries of ``tunnelmark-engine ask`` and ``answer`` (docs/engine.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tunnelmark.engine.config import PROTOCOL
from tunnelmark.engine.events import Event
from tunnelmark.engine.summary import Histogram, Reader, parsed
from tunnelmark.model.errors import LabError

Transport = Literal["udp", "tcp", "connect"]

HEADER_BYTES: Final = 16
"""Session and number: no request and no answer is shorter."""
LARGEST_DATAGRAM_BYTES: Final = 65507
LARGEST_MESSAGE_BYTES: Final = 1 << 20
MOST_SOCKETS: Final = 1024


@dataclass(frozen=True)
class Message:
    """Parameters of both ends."""

    transport: Transport
    session: int
    request_bytes: int
    response_bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {
            "transport": self.transport,
            "session": self.session,
            "request_bytes": self.request_bytes,
            "response_bytes": self.response_bytes,
        }


@dataclass(frozen=True)
class AskedFlow:
    """What the asking end counted of one flow."""

    begun: int
    answered: int
    lost: int
    late: int
    latency_ns: Histogram | None


@dataclass(frozen=True)
class AskSummary:
    """End of ``ask``."""

    span_ns: int
    latency_ns: Histogram | None
    """Of all flows together."""
    flows: tuple[AskedFlow, ...]


def ask_config(
    message: Message,
    flows: Sequence[tuple[str, str | None]],
    *,
    outstanding: int,
    duration_ns: int,
    timeout_ns: int,
    realtime_priority: int | None,
    parent_pid: int | None,
) -> dict[str, object]:
    """Return the configuration of the asking end; flows are (target, source)."""
    return {
        "protocol": PROTOCOL,
        "parent_pid": parent_pid,
        "message": message.to_json(),
        "flows": [{"target": target, "source": source} for target, source in flows],
        "outstanding": outstanding,
        "duration_ns": duration_ns,
        "timeout_ns": timeout_ns,
        "realtime_priority": realtime_priority,
    }


def answer_config(
    message: Message,
    listen: Sequence[str],
    *,
    realtime_priority: int | None,
    parent_pid: int | None,
) -> dict[str, object]:
    """Return the configuration of the answering end."""
    return {
        "protocol": PROTOCOL,
        "parent_pid": parent_pid,
        "message": message.to_json(),
        "listen": list(listen),
        "realtime_priority": realtime_priority,
    }


def parse_ask_summary(event: Event) -> AskSummary:
    """Parse the ``summary`` of ``ask``; ``LabError`` names what is wrong or does not agree."""
    read = Reader(event, "summary of ask")
    flows = tuple(parsed(AskedFlow, flow) for flow in read.objects("flows"))
    for number, flow in enumerate(flows):
        if flow.answered + flow.lost != flow.begun:
            raise LabError(
                f"summary of ask: flow {number} has {flow.begun} transactions, of which "
                f"{flow.answered} were answered and {flow.lost} lost"
            )
    return AskSummary(
        span_ns=read.whole("span_ns"), latency_ns=read.histogram("latency_ns"), flows=flows
    )
