"""What a link carried during a trial, and how evenly, wherever the link is. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tunnelmark.model.trial import Measurement

_GOODPUTS = (("tcp_goodput_bit_s",), ("goodput_bit_s", "goodput_reverse_bit_s"))
"""What adds up to the goodput of a path, where a workload has it."""


@dataclass(frozen=True)
class Carried:
    """The IP packets that a link forwarded one way, without those that it dropped."""

    packets: int
    octets: int


def wire_metrics(
    forward: Carried | None,
    reverse: Carried | None,
    *,
    payload_bytes: int,
    measuring_s: float,
) -> dict[str, float | None]:
    """Return rates on the link, the mean packet, and what stands around the payload."""
    carried = sum(way.octets for way in (forward, reverse) if way)
    packets = sum(way.packets for way in (forward, reverse) if way)
    return {
        "wire_forward_bit_s": _rate(forward, measuring_s),
        "wire_reverse_bit_s": _rate(reverse, measuring_s),
        "wire_packet_mean_bytes": per(carried, packets),
        "compression_ratio": per(payload_bytes, carried) if payload_bytes else None,
        "overhead_ratio": per(carried - payload_bytes, payload_bytes) if carried else None,
    }


def fairness(measurements: Sequence[Measurement]) -> float | None:
    """Return Jain's index of the goodput of the paths; None where there are not several.

    (sum of x) squared by n times the sum of x squared (RFC 5166 section 2.3.1).
    """
    for names in _GOODPUTS:
        rates = [
            sum(rate for name in names if (rate := m.metrics.get(name)) is not None)
            for m in measurements
            if m.path != "total" and any(m.metrics.get(name) is not None for name in names)
        ]
        if len(rates) > 1 and any(rates):
            return float(sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)))
    return None


def per(value: float | None, whole: float) -> float | None:
    """Return a value per unit of a whole; None where either is not there."""
    return None if value is None or whole <= 0 else value / whole


def _rate(carried: Carried | None, seconds: float) -> float | None:
    return None if carried is None or seconds <= 0 else carried.octets * 8 / seconds
