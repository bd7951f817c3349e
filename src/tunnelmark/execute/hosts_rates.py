"""How much a workload sends over a real line at most, and for how long.

The link's emulator stands at the client, behind the line: it holds what the client sends, while
what the server sends has crossed the line before it gets there.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.engine.link import AnyLinkSpec, LinkSpec
from tunnelmark.model.errors import LabError
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.bursts import BurstsParams
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.latency_under_load import LatencyUnderLoadParams
from tunnelmark.workloads.loads import RateParams, reference_rate
from tunnelmark.workloads.rate_search import RateSearchParams
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
    """Bits per second on the line at most; None where nothing bounds them."""

    forward: float | None
    """What the client sends."""
    reverse: float | None
    """What the server sends."""

    @property
    def most(self) -> float | None:
        """The larger one."""
        known = _all_known((self.forward, self.reverse))
        return None if known is None else max(known)


@dataclass(frozen=True)
class _Offered:
    """What a workload would send over a line without limits, in bits per second; None: any rate."""

    forward: float | None
    """What the client sends."""
    reverse: float | None = 0.0
    """What the server sends by itself."""
    answers: float | None = 0.0
    """What it sends because of what arrived: never more than arrives."""


def rates(workloads: Iterable[Workload], link: AnyLinkSpec | None, mtu: int, paths: int) -> Rates:
    """Return what workloads send at the same time, each over so many paths."""
    offered = [_offered(workload, link, mtu, paths) for workload in workloads]
    forward = _sum([one.forward for one in offered])
    answers = _sum([one.answers for one in offered])
    if isinstance(link, LinkSpec):
        # A copy that the emulator makes of a packet is one more on the line, and is answered.
        copies = 1 + link.a_to_b.duplicate
        forward, answers = _times(forward, copies), _times(answers, copies)
        forward = _lesser(forward, link_rate(link))
    return Rates(forward, _sum([*(one.reverse for one in offered), _lesser(answers, forward)]))


def link_rate(link: LinkSpec) -> float | None:
    """Return the most that the emulator lets through to the server at any time, in bit/s."""
    way = link.a_to_b
    if way.rate_bit_s is None:
        return None
    changed = (change.rate_bit_s for change in way.changes)
    return float(max(way.rate_bit_s, *(rate for rate in changed if rate is not None), 0))


def longest_s(workload: Workload) -> float:
    """Return how long a trial sends at most: a search as long as its last trial may take."""
    match workload.params:
        case RateSearchParams(trial=trial, drain=drain, settle=settle, most_trials=most):
            return most * ((trial + drain + settle) / 1e9 + _START_S)
        case VoipCapacityParams(duration=duration, drain=drain, most_calls=most):
            # Doubled until it fails, then halved.
            return 2 * most.bit_length() * ((duration + drain) / 1e9 + _START_S)
        case _:
            return workload.expected_s


def _offered(workload: Workload, link: AnyLinkSpec | None, mtu: int, paths: int) -> _Offered:
    params = workload.params
    found = _Offered(None, None)
    match params:
        case VoipParams(calls=calls) | VoipCapacityParams(most_calls=calls):
            found = _Offered(calls * _CALL_BIT_S, calls * _CALL_BIT_S)
        case TcpBulkParams(direction="forward") | FileTransferParams(direction="upload"):
            # Acknowledgements and handshakes are less than what they answer.
            found = _Offered(None, answers=None)
        case (
            UdpEchoParams(gap=gap, payload_bytes=payload)
            | LatencyUnderLoadParams(gap=gap, payload_bytes=payload)
        ):
            found = _directed("echo", paths * 1e9 / gap, payload)
        case BurstsParams(packet_rate=rate, largest_bytes=payload, direction=way):
            found = _directed(way, paths * rate, payload)
        case RateSearchParams() | RateParams():
            way = getattr(params, "direction", "echo")
            with contextlib.suppress(LabError):
                found = _directed(way, paths * _packet_rate(params, link, mtu), params.payload)
    return found


def _packet_rate(
    params: RateSearchParams | RateParams, link: AnyLinkSpec | None, mtu: int
) -> float:
    """Return the most datagrams per second; ``LabError`` where they depend on a rate of no link."""
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


def _lesser(one: float | None, other: float | None) -> float | None:
    return min((rate for rate in (one, other) if rate is not None), default=None)


def _times(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor


def _sum(found: Sequence[float | None]) -> float | None:
    known = _all_known(found)
    return None if known is None else sum(known)


def _all_known(found: Sequence[float | None]) -> list[float] | None:
    known = [rate for rate in found if rate is not None]
    return known if len(known) == len(found) else None
