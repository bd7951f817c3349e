"""How much a workload sends over a real line at most, and for how long.

The link's emulator stands at the client, behind the line: it holds what the client sends, while
what the server sends has crossed the line before it gets there.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.engine.link import AnyLinkSpec, LinkSpec
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.bursts import BurstsParams
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.latency_under_load import LatencyUnderLoadParams
from tunnelmark.workloads.loads import RateParams, reference_rate
from tunnelmark.workloads.rate_search import RateSearchParams, least_packets
from tunnelmark.workloads.search import MOST_ATTEMPTS
from tunnelmark.workloads.tcp_bulk import TcpBulkParams
from tunnelmark.workloads.udp_echo import UdpEchoParams
from tunnelmark.workloads.voip import VoipParams
from tunnelmark.workloads.voip_capacity import VoipCapacityParams

_MOST_HEADERS_BYTES: Final = 200
"""More than any tunnel adds to a datagram, with the headers of both packets where it is cut."""
_CALL_BIT_S: Final = 200_000
"""A call each way: 64 kbit/s (G.711) in at most 100 packets a second, with those headers."""
_START_S: Final = 1.0
"""Of each trial of a search."""


@dataclass(frozen=True)
class Rates:
    """Bits per second on the line at most; infinite where nothing bounds them."""

    forward: float
    """What the client sends."""
    reverse: float
    """What the server sends."""

    @property
    def most(self) -> float:
        """The larger one."""
        return max(self.forward, self.reverse)


@dataclass(frozen=True)
class _Offered:
    """What a workload would send over a line without limits, in bits per second."""

    forward: float
    """What the client sends."""
    reverse: float = 0.0
    """What the server sends by itself."""
    answers: float = 0.0
    """What it sends because of what arrived: never more than arrives."""


def rates(
    workloads: Iterable[Workload],
    link: AnyLinkSpec | None,
    mtu: int,
    paths: int,
    *,
    held: bool = True,
) -> Rates:
    """Return what workloads send at the same time over so many paths.

    Unless ``held``, as if the emulator's rate held nothing.
    """
    offered = [_offered(workload, link, mtu, paths) for workload in workloads]
    forward = sum(one.forward for one in offered)
    answers = sum(one.answers for one in offered)
    if isinstance(link, LinkSpec):
        # A copy that the emulator makes of a packet is one more on the line, and is answered.
        copies = 1 + link.a_to_b.duplicate
        forward = (min(forward, link_rate(link)) if held else forward) * copies
        answers *= copies
    return Rates(forward, sum(one.reverse for one in offered) + min(answers, forward))


def link_rate(link: LinkSpec) -> float:
    """Return the most that leaves the emulator's queue to the server at any time, in bit/s.

    Copies are made behind the queue, and come on top of it.
    """
    way = link.a_to_b
    if way.rate_bit_s is None:
        return math.inf
    changed = (change.rate_bit_s for change in way.changes)
    return max(way.rate_bit_s, *(rate for rate in changed if rate is not None), 0)


def longest_s(workload: Workload, link: AnyLinkSpec | None, mtu: int, paths: int) -> float:
    """Return how long a trial sends at most: a search as long as its last trial may take."""
    match workload.params:
        case RateSearchParams(most_trials=most, drain=drain, settle=settle) as params:
            # The slowest are the longest where the loss goal needs so many packets.
            lowest = params.lowest * reference_rate(params, link, mtu)
            one_s = _trial_packets(params, lowest, paths) / lowest
            return MOST_ATTEMPTS * most * (one_s + (drain + settle) / 1e9 + _START_S)
        case VoipCapacityParams(duration=duration, drain=drain, most_calls=most):
            # Doubled until it fails, then halved.
            one_s = (duration + drain) / 1e9 + _START_S
            return MOST_ATTEMPTS * 2 * most.bit_length() * one_s
        case _:
            return workload.expected_s


def most_bits(
    workloads: Sequence[Workload], link: AnyLinkSpec | None, mtu: int, paths: int
) -> float:
    """Return what a trial of the first workload, with the others beside it, sends each way."""
    own, *beside = workloads
    seconds = longest_s(own, link, mtu, paths)
    bits = rates(workloads, link, mtu, paths).most * seconds
    if isinstance(params := own.params, RateSearchParams):
        # No trial has more packets than one at the highest rate, which is much shorter than the
        # longest; and what the emulator holds in one second leaves it in the next.
        highest = _packet_rate(params, link, mtu)
        packets = MOST_ATTEMPTS * params.most_trials * _trial_packets(params, highest, paths)
        alone = rates([own], link, mtu, paths, held=False).most * packets / highest
        bits = min(bits, alone + rates(beside, link, mtu, paths).most * seconds)
    return bits


def _trial_packets(params: RateSearchParams, packet_rate: float, paths: int) -> float:
    """Return the packets of a trial at most, as the search has them."""
    return max(paths, least_packets(params.loss), packet_rate * params.trial / 1e9 + 1)


def _offered(workload: Workload, link: AnyLinkSpec | None, mtu: int, paths: int) -> _Offered:
    params = workload.params
    # What is spread over paths is one stream. An echo under load goes over each of them.
    each = {getattr(params, "share", ""), getattr(params, "load", "")}
    times = paths if "each" in each or isinstance(params, LatencyUnderLoadParams) else 1
    way = getattr(params, "direction", "echo")
    match params:
        case VoipParams(calls=calls) | VoipCapacityParams(most_calls=calls):
            return _Offered(calls * _CALL_BIT_S, calls * _CALL_BIT_S)
        case TcpBulkParams(direction="forward") | FileTransferParams(direction="upload"):
            # Acknowledgements and handshakes are less than what they answer.
            return _Offered(math.inf, answers=math.inf)
        case UdpEchoParams(gap=gap) | LatencyUnderLoadParams(gap=gap):
            return _directed(way, times * 1e9 / gap, params.payload_bytes)
        case BurstsParams():
            return _directed(way, params.packet_rate, params.largest_bytes)
        case RateSearchParams() | RateParams():
            return _directed(way, times * _packet_rate(params, link, mtu), params.payload)
    return _Offered(math.inf, math.inf)


def _packet_rate(
    params: RateSearchParams | RateParams, link: AnyLinkSpec | None, mtu: int
) -> float:
    """Return the most datagrams per second."""
    if isinstance(params, RateParams):
        return params.rate(link, mtu)
    return params.highest * reference_rate(params, link, mtu)


def _directed(way: str, packet_rate: float, payload_bytes: int) -> _Offered:
    rate = packet_rate * 8 * (payload_bytes + _MOST_HEADERS_BYTES)
    return _Offered(
        0.0 if way == "reverse" else rate,
        rate if way in {"reverse", "both"} else 0.0,
        rate if way == "echo" else 0.0,
    )
