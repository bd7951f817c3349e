"""A UDP load as iperf3 reports it: the JSON of ``iperf3 -c HOST -u -J`` (``-R`` for reverse).

Fields that iperf3 takes from its own sockets and CPU are left out: they were not measured.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

import tunnelmark
from tunnelmark.engine.records import Flow
from tunnelmark.report.foreign.packets import Sending

_SECOND_NS: Final = 10**9
_FIRST_SOCKET: Final = 5
"""iperf3's first stream has this one as a rule; readers take it as the name of a stream."""
_MOST_SECONDS: Final = 100_000

Times = npt.NDArray[np.int64]


def iperf3_file(trial: Mapping[str, Any], sending: Sending) -> bytes:
    """Return the report of one direction of a load, as the client's iperf3 would write it."""
    flows = [flow for flow in sending.flows if len(flow.sent_ns)]
    moment: datetime = trial["started_at"].astimezone(UTC)
    sender = not sending.reverse
    streams = [
        _Stream(_FIRST_SOCKET + number, flow, sender=sender) for number, flow in enumerate(flows)
    ]
    document = {
        "start": {
            "connected": [],
            "version": f"tunnelmark {tunnelmark.__version__}",
            "system_info": "",
            "timestamp": {
                "time": format_datetime(moment, usegmt=True),
                "timesecs": int(moment.timestamp()),
            },
            "test_start": {
                "protocol": "UDP",
                "num_streams": len(streams),
                "blksize": int(max(flow.size.max() for flow in flows)) if flows else 0,
                "omit": 0,
                "duration": round(max((one.seconds for one in streams), default=0.0)),
                "bytes": 0,
                "blocks": 0,
                "reverse": int(sending.reverse),
                "tos": 0,
            },
        },
        "intervals": _intervals(streams, sender=sender),
        "end": _end(streams, sender=sender),
    }
    return json.dumps(document, allow_nan=False, indent=1).encode()


@dataclass(frozen=True)
class _Stream:
    socket: int
    flow: Flow
    sender: bool
    """Whether the client, whose report it is, sent it."""

    @property
    def seconds(self) -> float:
        """Of sending."""
        return _lasted_s(self.flow.sent_ns)

    @property
    def times(self) -> Times:
        """When packets left, or came, at the client; since the first."""
        times = self.flow.sent_ns if self.sender else self.flow.arrived_ns[self.flow.arrived]
        return times - times.min() if len(times) else times

    def total(self) -> dict[str, Any]:
        """Return all of it, with what was lost."""
        flow = self.flow
        packets, lost = len(flow.sent_ns), int((~flow.arrived).sum())
        octets = int(flow.size.sum())
        return {
            "start": 0,
            "end": self.seconds,
            "seconds": self.seconds,
            "bytes": octets,
            "bits_per_second": _rate(octets, self.seconds),
            "jitter_ms": _jitter_ms(flow),
            "lost_packets": lost,
            "packets": packets,
            "lost_percent": 100 * lost / packets,
            "out_of_order": _out_of_order(flow),
            "sender": self.sender,
        }


def _end(streams: Sequence[_Stream], *, sender: bool) -> dict[str, Any]:
    totals = [one.total() for one in streams]
    flows = [one.flow for one in streams]
    packets, lost = (sum(one[name] for one in totals) for name in ("packets", "lost_packets"))
    common = {
        "jitter_ms": sum(one["jitter_ms"] for one in totals) / max(len(totals), 1),
        "lost_packets": lost,
        "packets": packets,
        "lost_percent": 100 * lost / packets if packets else 0.0,
    }
    sent = _sum(sum(int(f.size.sum()) for f in flows), [f.sent_ns for f in flows])
    received = _sum(
        sum(int(f.size[f.arrived].sum()) for f in flows), [f.arrived_ns[f.arrived] for f in flows]
    )
    return {
        "streams": [
            {"udp": {"socket": one.socket, **total}}
            for one, total in zip(streams, totals, strict=True)
        ],
        "sum": {**sent, **common, "sender": sender},
        "sum_sent": {
            **sent,
            **common,
            "jitter_ms": 0,
            "lost_packets": 0,
            "lost_percent": 0,
            "sender": True,
        },
        "sum_received": {**received, **common, "sender": False},
    }


def _sum(octets: int, times: Sequence[Times]) -> dict[str, Any]:
    lasted_s = max((_lasted_s(one) for one in times), default=0.0)
    return {
        "start": 0,
        "end": lasted_s,
        "seconds": lasted_s,
        "bytes": octets,
        "bits_per_second": _rate(octets, lasted_s),
    }


def _intervals(streams: Sequence[_Stream], *, sender: bool) -> list[dict[str, Any]]:
    """Return seconds as the client saw them: what it sent, or what came to it."""
    lasted_s = max((_lasted_s(one.times) for one in streams), default=0.0)
    found: list[dict[str, Any]] = []
    for number in range(min(-int(-lasted_s // 1), _MOST_SECONDS)):
        end_s = min(number + 1.0, lasted_s)
        seconds = end_s - number
        common: dict[str, Any] = {"start": number, "end": end_s, "seconds": seconds}
        rows: list[dict[str, Any]] = []
        for one in streams:
            inside = one.times // _SECOND_NS == number
            sizes = one.flow.size if sender else one.flow.size[one.flow.arrived]
            octets = int(sizes[inside].sum())
            rows.append(
                {
                    "socket": one.socket,
                    **common,
                    "bytes": octets,
                    "bits_per_second": _rate(octets, seconds),
                    "packets": int(inside.sum()),
                    "omitted": False,
                    "sender": sender,
                }
            )
        octets = sum(row["bytes"] for row in rows)
        found.append(
            {
                "streams": rows,
                "sum": {
                    **common,
                    "bytes": octets,
                    "bits_per_second": _rate(octets, seconds),
                    "packets": sum(row["packets"] for row in rows),
                    "omitted": False,
                    "sender": sender,
                },
            }
        )
    return found


def _lasted_s(times_ns: Times) -> float:
    """Return how long packets took, the pause behind the last one included."""
    count = len(times_ns)
    span_ns = int(times_ns.max() - times_ns.min()) if count else 0
    return span_ns / 1e9 * count / (count - 1) if count > 1 else 0.0


def _rate(octets: int, seconds: float) -> float:
    return octets * 8 / seconds if seconds > 0 else 0.0


def _jitter_ms(flow: Flow) -> float:
    """Return the interarrival jitter at the end (RFC 3550 section 6.4.1), as iperf3 has it."""
    arrived = flow.arrived
    order = np.argsort(flow.arrived_ns[arrived], kind="stable")
    transit = (flow.arrived_ns - flow.sent_ns)[arrived][order]
    if len(transit) < 2:  # noqa: PLR2004 - a difference needs two
        return 0.0
    changes = np.abs(np.diff(transit)).astype(np.float64)
    return float(lfilter([1 / 16], [1, -15 / 16], changes)[-1]) / 1e6


def _out_of_order(flow: Flow) -> int:
    """Return how many packets came behind one that was sent later."""
    arrived = flow.arrived
    places = np.argsort(flow.arrived_ns[arrived], kind="stable")
    return int((places < np.maximum.accumulate(places)).sum()) if len(places) else 0
