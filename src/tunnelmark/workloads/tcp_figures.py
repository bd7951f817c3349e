"""Figures of bulk transfers over TCP, of what both ends of each flow reported. Pure functions."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tunnelmark.workloads.iperf3 import Report

Direction = Literal["forward", "reverse"]

_MOST_SERIES: Final = 600


@dataclass(frozen=True)
class Reported:
    """What both ends of a flow reported."""

    path: str
    direction: Direction
    sender: Report
    receiver: Report
    idle_rtt_ns: float | None = None
    """Smallest RTT of the path before the transfer, the baseline of RFC 6349 section 3.2."""

    def after(self, start_s: float) -> "Reported":
        """Return what both ends reported of what came from ``start_s`` on."""
        return dataclasses.replace(
            self, sender=self.sender.after(start_s), receiver=self.receiver.after(start_s)
        )


def figures(reported: Sequence[Reported]) -> dict[str, float | None]:
    """Return the metrics of some flows together: rates add up, RTTs are pooled."""
    sender_seconds = [s for t in reported for s in t.sender.seconds if s.whole]
    rtts = [s.rtt_ns for s in sender_seconds if s.rtt_ns is not None]
    again = [t.sender.retransmits for t in reported if t.sender.retransmits is not None]
    spans = [t.sender.sent_s for t in reported if t.sender.sent_s]
    windows = [
        statistics.median(found)
        for t in reported
        if (found := [s.cwnd_bytes for s in t.sender.seconds if s.whole and s.cwnd_bytes])
    ]
    return {
        "tcp_goodput_bit_s": _rate(reported),
        "tcp_goodput_forward_bit_s": _rate([t for t in reported if t.direction == "forward"]),
        "tcp_goodput_reverse_bit_s": _rate([t for t in reported if t.direction == "reverse"]),
        "tcp_goodput_slowest_bit_s": _slowest(reported),
        "tcp_retransmits_per_s": sum(again) / max(spans) if again and spans else None,
        "tcp_rtt_p50_ns": statistics.median(rtts) if rtts else None,
        "tcp_rtt_max_ns": max(rtts) if rtts else None,
        "tcp_cwnd_p50_bytes": sum(windows) if windows else None,
        "tcp_efficiency_ratio": _efficiency(reported),
        "tcp_buffer_delay_ratio": _buffer_delay(reported),
    }


def series(reported: Sequence[Reported]) -> list[dict[str, object]]:
    """Return what happened second by second, flow by flow, for figures."""
    return [
        {
            "path": t.path,
            "direction": t.direction,
            "start_s": [round(s.start_s, 3) for s in t.receiver.seconds][:_MOST_SERIES],
            "goodput_bit_s": [
                None if s.goodput_bit_s is None else round(s.goodput_bit_s)
                for s in t.receiver.seconds
            ][:_MOST_SERIES],
            "rtt_ns": [s.rtt_ns for s in t.sender.seconds][:_MOST_SERIES],
            "cwnd_bytes": [s.cwnd_bytes for s in t.sender.seconds][:_MOST_SERIES],
            "retransmits": [s.retransmits for s in t.sender.seconds][:_MOST_SERIES],
        }
        for t in reported
    ]


def received(reported: Reported) -> tuple[int, float]:
    """Return (payload bytes, seconds) of the receiving end."""
    report = reported.receiver
    return report.received_bytes or 0, report.received_s or 0.0


def _efficiency(reported: Sequence[Reported]) -> float | None:
    """Return the share of the bytes sent that were not sent again (RFC 6349 section 4.2)."""
    sent = again = 0
    for one in reported:
        report = one.sender
        if report.sent_bytes is None or report.retransmits is None or report.mss_bytes is None:
            return None
        sent += report.sent_bytes
        again += report.retransmits * report.mss_bytes
    return sent / (sent + again) if sent else None


def _buffer_delay(reported: Sequence[Reported]) -> float | None:
    """Return the mean RTT in the transfer above the idle one, in idle RTTs (RFC 6349, 4.3).

    Of several flows the largest: the buffer that is fullest.
    """
    ratios = []
    for one in reported:
        rtts = [s.rtt_ns for s in one.sender.seconds if s.whole and s.rtt_ns is not None]
        if rtts and one.idle_rtt_ns:
            ratios.append((statistics.fmean(rtts) - one.idle_rtt_ns) / one.idle_rtt_ns)
    return max(ratios, default=None)


def _rate(reported: Sequence[Reported]) -> float | None:
    rates = [octets * 8 / s for octets, s in (received(t) for t in reported) if s > 0]
    return sum(rates) if rates else None


def _slowest(reported: Sequence[Reported]) -> float | None:
    """Return the smallest sum over all flows in one second; seconds are counted by each flow."""
    seconds = [[s for s in t.receiver.seconds if s.whole] for t in reported]
    together = list(zip(*seconds, strict=False))
    return min((sum(s.goodput_bit_s or 0.0 for s in at_once) for at_once in together), default=None)
