"""The instrument's floor: what the lab adds to a round trip without tunnel and without link delay.

Measured once a run for all labs that are alike, over the baseline, with little traffic: the round
trips of small packets less what the link is set to take of them. Delays of that size say more of
the lab than of the tunnel.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tunnelmark.engine.config import ReceiveTime
from tunnelmark.engine.link import AnyLinkSpec, Direction, LinkSpec
from tunnelmark.lab.lab import Lab
from tunnelmark.model.block import Stratum
from tunnelmark.model.overhead import IpName
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.loads import ip_packets
from tunnelmark.workloads.quantiles import quantile, tail
from tunnelmark.workloads.streams import plan, run_streams
from tunnelmark.workloads.udp_echo import SMALLEST_PAYLOAD_BYTES

_PACKETS: Final = 3000
"""Enough for a 99.9th percentile where a packet a millisecond can be sent."""
_LONGEST_NS: Final = 3 * 10**9
_GAP_NS: Final = 10**6
_GAP_EMULATED_NS: Final = 5 * 10**6
_LEAST_GAP_SERIALIZATIONS: Final = 4
"""No packet shall wait for the one before it."""
_WAIT_NS: Final = 2 * 10**9
_FRAME_HEADER_BYTES: Final = 14


@dataclass(frozen=True)
class Floor:
    """Quantiles of the round trip that the lab adds; None where too few packets came for one."""

    rtt_p50_ns: float | None
    rtt_p99_ns: float | None
    rtt_p999_ns: float | None
    packets: int


Floors = dict[str, Floor | None]
"""Of the labs of a run, by what such a lab is; None where what the link takes is not known."""


def measure_floor(
    base: TunnelUp, lab: Lab, *, seed: int, receive_time: ReceiveTime
) -> Floor | None:
    """Measure it over the bare link; None where what the link takes is not fixed, or not known."""
    ip = base.paths[0].ip
    fixed = fixed_round_trip(lab.link, SMALLEST_PAYLOAD_BYTES, lab.client.mtu_bytes, ip)
    if fixed is None:
        return None
    usual = _GAP_EMULATED_NS if lab.place.stratum is Stratum.EMULATED else _GAP_NS
    gap_ns = max(usual, _LEAST_GAP_SERIALIZATIONS * fixed.serialization_ns)
    context = TrialContext(
        client=lab.client_host,
        server=lab.server_host,
        paths=base.paths[:1],
        engine=lab.place.engine,
        seed=seed,
        samples_dir=None,
        sample_stem="floor",
        progress=lambda _progress: None,
        cancelled=lambda: False,
        owner_pid=lab.place.owner_pid,
        spin=lab.spin,
        receive_time=receive_time,
        one_clock=lab.place.one_clock,
    )
    flows = plan(
        context,
        name="floor",
        gap_ns=gap_ns,
        packets=min(_PACKETS, _LONGEST_NS // gap_ns),
        payload_bytes=SMALLEST_PAYLOAD_BYTES,
        content={"type": "random"},
        load="each",
    )
    joined = run_streams(context, flows, drain_ns=_WAIT_NS).joined
    if not joined:
        return None
    added = np.concatenate([flow.rtt_ns for flow in joined]) - fixed.total_ns
    return Floor(quantile(added, 50), tail(added, 99), tail(added, 99.9), len(added))


@dataclass(frozen=True)
class RoundTrip:
    """What a link is set to take of a datagram, there and back."""

    total_ns: int
    serialization_ns: int
    """Of the slower direction."""


def fixed_round_trip(
    link: AnyLinkSpec | None, payload_bytes: int, mtu_bytes: int, ip: IpName = "ipv4"
) -> RoundTrip | None:
    """Return what the link takes of each datagram; None where that varies or is not known."""
    if not isinstance(link, LinkSpec):
        return None
    ways = (link.a_to_b, link.b_to_a)
    if any(_varies(way) for way in ways):
        return None
    packets = ip_packets(payload_bytes, mtu_bytes, ip)
    serializations = [sum(_serialization_ns(way, packet) for packet in packets) for way in ways]
    delays = sum(way.delay_ns for way in ways)
    return RoundTrip(delays + sum(serializations), max(serializations))


def _varies(way: Direction) -> bool:
    return bool(
        way.trace is not None
        or way.changes
        or way.delay_variation.type != "none"
        or way.hold_back.probability
    )


def _serialization_ns(way: Direction, ip_bytes: int) -> int:
    if way.rate_bit_s is None:
        return 0
    octets = _FRAME_HEADER_BYTES + ip_bytes + way.frame_overhead_bytes
    return round(max(way.frame_min_bytes, octets) * 8e9 / way.rate_bit_s)
