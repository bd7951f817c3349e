"""What iperf3 reports in JSON, parsed strictly; pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

LARGEST_REPORT_BYTES: Final = 64 << 20
"""An hour of 64 streams is half of it."""
_SECOND: Final = 0.9
"""A sample of less than this share of a second is a rest at the end, no second."""

_EARLY_S: Final = 0.5
"""Samples do not begin on the second: one that begins so long before it is that of the second."""

_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Number = Annotated[float, Field(ge=0, lt=1e18, allow_inf_nan=False)]


@dataclass(frozen=True)
class Second:
    """One sample of all streams of one iperf3 together."""

    start_s: float
    seconds: float
    payload_bytes: int
    retransmits: int | None
    rtt_ns: float | None
    """Mean of the streams' smoothed RTT; only the sending end knows it."""
    cwnd_bytes: float | None
    """Sum of the streams' congestion windows; likewise."""

    @property
    def goodput_bit_s(self) -> float | None:
        """Payload per second; None of a sample without length."""
        return self.payload_bytes * 8 / self.seconds if self.seconds > 0 else None

    @property
    def whole(self) -> bool:
        """Whether it is a second, and not the rest at the end."""
        return self.seconds >= _SECOND


@dataclass(frozen=True)
class Report:
    """One end's account of a test; figures are None when the test did not come to its end."""

    error: str | None
    version: str
    mss_bytes: int | None
    congestion: str | None
    sent_bytes: int | None
    sent_s: float | None
    received_bytes: int | None
    received_s: float | None
    retransmits: int | None
    seconds: tuple[Second, ...]

    def after(self, start_s: float) -> "Report":
        """Return the account of what came from ``start_s`` on: its start-up is left out.

        By the samples of a second; the sums of a test that has none from there on are unknown.
        """
        if start_s <= 0:
            return self
        kept = tuple(s for s in self.seconds if s.start_s >= start_s - _EARLY_S)
        octets = sum(s.payload_bytes for s in kept) if kept else None
        span_s = sum(s.seconds for s in kept) if kept else None
        again = [s.retransmits for s in kept if s.retransmits is not None]
        return dataclasses.replace(
            self,
            sent_bytes=octets,
            sent_s=span_s,
            received_bytes=octets,
            received_s=span_s,
            retransmits=sum(again) if again else None,
            seconds=kept,
        )


def parse_report(data: bytes) -> Report:
    """Return the report; raises ``ValueError`` with the place of what is not as documented."""
    try:
        document = _Document.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise ValueError(f"the report of iperf3 is damaged at {place}: {first['msg']}") from error
    sent, received = document.end.sum_sent, document.end.sum_received
    return Report(
        error=document.error,
        version=document.start.version[:80],
        mss_bytes=document.start.tcp_mss_default or document.start.tcp_mss,
        congestion=document.end.sender_tcp_congestion,
        sent_bytes=sent.bytes if sent else None,
        sent_s=sent.seconds if sent else None,
        received_bytes=received.bytes if received else None,
        received_s=received.seconds if received else None,
        retransmits=sent.retransmits if sent else None,
        seconds=tuple(_second(i.streams) for i in document.intervals if i.streams),
    )


def _second(streams: Sequence["_Stream"]) -> Second:
    rtts = [s.rtt * 1000.0 for s in streams if s.rtt]
    windows = [s.snd_cwnd for s in streams if s.snd_cwnd is not None]
    again = [s.retransmits for s in streams if s.retransmits is not None]
    return Second(
        start_s=min(s.start for s in streams),
        seconds=max(s.seconds for s in streams),
        payload_bytes=sum(s.bytes for s in streams),
        retransmits=sum(again) if again else None,
        rtt_ns=sum(rtts) / len(rtts) if rtts else None,
        cwnd_bytes=float(sum(windows)) if windows else None,
    )


class _Lenient(BaseModel):
    # Newer versions report more than older ones; what is read is checked, the rest is passed over.
    model_config = ConfigDict(extra="ignore", strict=True)


class _Sum(_Lenient):
    bytes: _Count
    seconds: _Number
    retransmits: _Count | None = None


class _Stream(_Lenient):
    start: _Number
    seconds: _Number
    bytes: _Count
    retransmits: _Count | None = None
    snd_cwnd: _Count | None = None
    rtt: _Count | None = None
    """Microseconds."""


class _Interval(_Lenient):
    streams: list[_Stream] = Field(default_factory=list)


class _Start(_Lenient):
    version: str = ""
    tcp_mss: _Count | None = None
    tcp_mss_default: _Count | None = None


class _End(_Lenient):
    sum_sent: _Sum | None = None
    sum_received: _Sum | None = None
    sender_tcp_congestion: str | None = None


class _Document(_Lenient):
    start: _Start = Field(default_factory=_Start)
    intervals: list[_Interval] = Field(default_factory=list)
    end: _End = Field(default_factory=_End)
    error: str | None = None
