"""Configurations for ``tunnelmark-engine send`` and ``reflect`` (``docs/engine.md``)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tunnelmark.engine.traffic import FixedGap, FixedSize, Schedule, Size

PROTOCOL: Final = 2
"""Version of ``docs/engine.md`` that this package speaks."""
ReceiveTime = Literal["kernel", "user"]
"""When a packet has arrived: when the kernel took it in, or when the engine had it."""
LEAST_PAYLOAD_BYTES: Final = 18
"""Length of a test packet's short header: no payload is shorter."""
LARGEST_PAYLOAD_BYTES: Final = 65507
"""Largest UDP payload over IPv4: 65535 minus both headers."""
SOCKET_BUFFER_BYTES: Final = 8 << 20
_SHORT_NUMBERS: Final = 1 << 16


@dataclass(frozen=True)
class Session:
    """A flow's session and key, known to both ends."""

    flow: int
    session: int
    key: str = field(repr=False)
    """32 hexadecimal digits; never logged."""

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"flow": self.flow, "session": self.session, "key": self.key}


def sessions(stream: random.Random, count: int) -> list[Session]:
    """Return so many sessions with keys, drawn from ``stream``; no two are taken for each other.

    Distinct by construction in the lower 16 bits, by which the short header names a session.
    """
    lower = stream.sample(range(_SHORT_NUMBERS), count)
    return [
        Session(flow, stream.getrandbits(16) * _SHORT_NUMBERS + half, stream.randbytes(16).hex())
        for flow, half in enumerate(lower)
    ]


@dataclass(frozen=True)
class Flow:
    """One flow of a sender."""

    session: Session
    target: str
    source: str | None
    gap_ns: int
    """Fixed gap; the mean one where there is another ``schedule``."""
    start_offset_ns: int
    packets: int | None
    duration_ns: int | None
    payload_bytes: int
    """Fixed payload; the largest one where there is another ``size``."""
    content: dict[str, object]
    schedule: Schedule | None = None
    """In place of the fixed gap."""
    size: Size | None = None
    """In place of the fixed payload."""
    netns: str | None = None
    """Path of the network namespace that it sends from; None: the sender's own."""
    target_netns: str | None = None
    """The same of its reflector's socket."""
    listen: str | None = None
    """Address of that socket; None: ``target``, unless a NAT is before it."""
    traffic_class: int = 0
    """DSCP and ECN of its packets, as one byte (RFC 2474, RFC 3168)."""

    @property
    def reflector(self) -> str:
        """Address at which its reflector listens."""
        return self.listen or self.target

    @property
    def span_ns(self) -> int:
        """From the start of the sender to the end of this flow, as planned."""
        sending = self.duration_ns if self.packets is None else self.gap_ns * self.packets
        return self.start_offset_ns + (sending or 0)

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        stop: dict[str, object] = (
            {"type": "packets", "packets": self.packets}
            if self.packets is not None
            else {"type": "duration", "duration_ns": self.duration_ns}
        )
        return {
            **self.session.to_json(),
            "target": self.target,
            "source": self.source,
            "interface": None,
            "start_offset_ns": self.start_offset_ns,
            "schedule": (self.schedule or FixedGap(self.gap_ns)).to_json(),
            "stop": stop,
            "size": (self.size or FixedSize(self.payload_bytes)).to_json(),
            "content": self.content,
            # An older engine need not know it.
            **({} if self.netns is None else {"netns": self.netns}),
            **({"traffic_class": self.traffic_class} if self.traffic_class else {}),
        }


def send_config(
    flows: Sequence[Flow],
    *,
    seed: int,
    drain_ns: int,
    late_ns: int,
    records: str | None,
    realtime_priority: int | None,
    parent_pid: int | None,
    segment: bool = False,
    spin: bool = True,
    receive_time: ReceiveTime = "kernel",
) -> dict[str, object]:
    """Return the whole configuration of a sender.

    With ``segment``, packets of one length that are due together leave as one that the kernel cuts.
    Without ``spin`` the sender sleeps until a packet is due.
    """
    return {
        "protocol": PROTOCOL,
        "parent_pid": parent_pid,
        "flows": [flow.to_json() for flow in flows],
        "seed": seed,
        "drain_ns": drain_ns,
        "late_ns": late_ns,
        "missed": "send",
        "segment": segment,
        "spin": spin,
        "dont_fragment": False,
        "receive_time": receive_time,
        "records": records,
        "realtime_priority": realtime_priority,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": SOCKET_BUFFER_BYTES,
    }


def reflect_config(
    listen: Sequence[str],
    sessions: Sequence[Session],
    *,
    records: str | None,
    realtime_priority: int | None,
    parent_pid: int | None,
    answer: bool = True,
    receive_time: ReceiveTime = "kernel",
    elsewhere: Sequence[tuple[str, str]] = (),
) -> dict[str, object]:
    """Return the whole configuration of a reflector; without ``answer`` it only counts.

    ``elsewhere`` are addresses to listen on in other network namespaces, each with the path.
    """
    more = [{"address": address, "netns": netns} for address, netns in elsewhere]
    return {
        **({"listen_in": more} if more else {}),
        "protocol": PROTOCOL,
        "parent_pid": parent_pid,
        "listen": list(listen),
        "sessions": [session.to_json() for session in sessions],
        "answer": answer,
        "receive_time": receive_time,
        "records": records,
        "realtime_priority": realtime_priority,
        "cpu": None,
        "socket_buffer_bytes": SOCKET_BUFFER_BYTES,
    }


def address(host: str, port: int) -> str:
    """Return an address with port as the engine reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
