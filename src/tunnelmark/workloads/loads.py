"""Loads of constant rate: how a study writes them, and one trial of such a load."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tunnelmark.engine import config
from tunnelmark.engine.link import AnyLinkSpec, LinkSpec
from tunnelmark.engine.records import MISSING_NS, Flow
from tunnelmark.model.errors import LabError
from tunnelmark.model.overhead import IP_HEADER_BYTES, IP_VERSIONS, IpName
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, RateBitS, Ratio
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.beside import together
from tunnelmark.workloads.echo_metrics import one_clock, rate, sent_rate, total_metrics
from tunnelmark.workloads.quantiles import tail
from tunnelmark.workloads.streams import Load, Streamed, content_json, plan, run_streams, turned

Way = Literal["forward", "reverse", "both", "echo"]

ETHERNET_BYTES: Final = 18
"""Addresses, type and FCS: what RFC 2544 counts in a frame beside the IP packet."""
IPV4_UDP_BYTES: Final = 28
_FRAGMENT_HEADER_BYTES: Final = 8
MOST_PACKETS: Final = 50_000_000
_LONGEST_NS: Final = 3600 * 10**9
_LINE_BYTES: Final = 20
"""Preamble, delimiter and gap between frames (IEEE Std 802.3-2018, 3.2 and 4.4.2)."""


class LoadParams(Params):
    """Datagrams of one size."""

    payload_bytes: (
        Annotated[int, Field(ge=config.LEAST_PAYLOAD_BYTES, le=config.LARGEST_PAYLOAD_BYTES)] | None
    ) = Field(None, description="UDP payload of each datagram; this or frame_bytes")
    frame_bytes: Annotated[int, Field(ge=64, le=9216)] | None = Field(
        None,
        description="Ethernet frame of each datagram before any tunnel, from the destination "
        "address to the FCS, over IPv4 (RFC 2544 section 9: 64, 128, 256, 512, 1024, 1280, 1518)",
    )
    content: Literal["zero", "random", "repeat", "compressible"] = Field(
        "random", description="what fills the payload; matters for a tunnel that compresses"
    )
    compressible_share: Ratio = Field(0.5, description="share of zeros with content compressible")
    share: Load = Field(
        "spread",
        description="with several tunnels: whether the load is spread over them or each carries "
        "all of it",
    )
    segmentation: bool = Field(
        False,
        description="datagrams that are due together are handed to the kernel as one (UDP_SEGMENT, "
        "as QUIC programs do), which cuts them: for rates that one call a batch does not reach",
    )
    drain: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        2 * 10**9,
        description="waiting time: a packet that comes later than this after it was sent is lost, "
        "whichever of the trial it is (RFC 7680; RFC 2544 section 23: 2 s)",
    )

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.payload_bytes is None) == (self.frame_bytes is None):
            raise ValueError("needs either payload_bytes or frame_bytes")
        return self

    @property
    def payload(self) -> int:
        """Bytes of payload of each datagram."""
        if self.frame_bytes is not None:
            return self.frame_bytes - ETHERNET_BYTES - IPV4_UDP_BYTES
        return self.payload_bytes or 0


class RateParams(LoadParams):
    """Datagrams of one size at a constant rate, given in one of three ways."""

    packet_rate: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="datagrams per second"
    )
    throughput: RateBitS | None = Field(
        None,
        description="payload per second; the packet rate is this by 8 times the payload size",
    )
    load: Annotated[Ratio, Field(gt=0)] | None = Field(
        None, description="share of the reference rate"
    )
    reference: RateBitS | None = Field(
        None, description="rate that load is a share of; the slowest direction of the link if none"
    )
    reference_counts: Literal["payload", "ip", "frame", "line"] = Field(
        "ip",
        description="what fills the reference rate: payload, IP packets, Ethernet frames, or "
        "those with preamble and gap",
    )
    duration: Annotated[DurationNs, Field(ge=10**6, le=_LONGEST_NS)] = Field(
        5 * 10**9, description="how long packets are sent"
    )

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        given = [self.packet_rate, self.throughput, self.load]
        if sum(value is not None for value in given) != 1:
            raise ValueError("needs one of packet_rate, throughput and load")
        if self.reference is not None and self.load is None:
            raise ValueError("has reference but no load, which would be a share of it")
        return self

    def rate(self, link: AnyLinkSpec | None, mtu_bytes: int, ip: IpName = "ipv4") -> float:
        """Return datagrams per second; ``LabError`` where the link has no rate to be a share of."""
        if self.packet_rate is not None:
            return self.packet_rate
        if self.throughput is not None:
            return self.throughput / (8 * self.payload)
        return (self.load or 0) * reference_rate(self, link, mtu_bytes, ip)

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:
        """Return why this load cannot be sent over such a link, or None."""
        try:
            packets = self.rate(link, mtu_bytes) * self.duration / 1e9
        except LabError as error:
            return str(error)
        return too_many(packets)


def reference_rate(
    params: LoadParams, link: AnyLinkSpec | None, mtu_bytes: int, ip: IpName = "ipv4"
) -> float:
    """Return the datagrams per second over ``ip`` that fill the reference rate, or the link."""
    reference: int | None = getattr(params, "reference", None)
    if reference is not None:
        counts: str = getattr(params, "reference_counts", "ip")
        packet = IP_HEADER_BYTES[IP_VERSIONS[ip]] + 8
        beside = {
            "payload": 0,
            "ip": packet,
            "frame": packet + ETHERNET_BYTES,
            "line": packet + ETHERNET_BYTES + _LINE_BYTES,
        }
        return reference / (8 * (params.payload + beside[counts]))
    rate = link_packet_rate(link, params.payload, mtu_bytes, ip)
    if rate is None:
        raise LabError("the link has no fixed rate that load could be a share of: give reference")
    return rate


def link_packet_rate(
    link: AnyLinkSpec | None, payload_bytes: int, mtu_bytes: int, ip: IpName = "ipv4"
) -> float | None:
    """Return the datagrams per second that the slowest direction of a link carries without tunnel.

    Exact, fragments included; None where there is no fixed rate.
    """
    if not isinstance(link, LinkSpec):
        return None
    rates = []
    for direction in (link.a_to_b, link.b_to_a):
        if direction.rate_bit_s is None:
            continue
        octets = sum(
            max(direction.frame_min_bytes, 14 + packet + direction.frame_overhead_bytes)
            for packet in ip_packets(payload_bytes, mtu_bytes, ip)
        )
        rates.append(direction.rate_bit_s / (8 * octets))
    return min(rates, default=None)


def ip_packets(payload_bytes: int, mtu_bytes: int, ip: IpName = "ipv4") -> list[int]:
    """Return the lengths of the IP packets of one datagram (RFC 791 3.2, RFC 8200 section 4.5)."""
    header = IP_HEADER_BYTES[IP_VERSIONS[ip]]
    left, packets = payload_bytes + 8, []
    if left + header > mtu_bytes and ip == "ipv6":
        header += _FRAGMENT_HEADER_BYTES
    while left > mtu_bytes - header:
        part = (mtu_bytes - header) // 8 * 8
        packets.append(part + header)
        left -= part
    return [*packets, left + header]


def too_many(packets: float) -> str | None:
    """Return why so many packets are not sent in one trial, or None."""
    if packets > MOST_PACKETS:
        return f"would send {packets:.0f} packets a trial, at most {MOST_PACKETS} are allowed"
    return None


@dataclass(frozen=True)
class Loaded:
    """One trial of a load: ``forward`` is the echo too, None where nothing was sent that way."""

    forward: Streamed | None
    reverse: Streamed | None
    packet_rate: float
    """Datagrams per second that were asked for, each way: over all paths, or on ``each``."""
    echo: bool = False
    """Whether the far end replied."""
    paths: int = 1
    each: bool = False

    @property
    def streams(self) -> tuple[Streamed, ...]:
        """Those that were sent, forward first."""
        return tuple(one for one in (self.forward, self.reverse) if one is not None)

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(one.ok for one in self.streams)

    @property
    def recorded(self) -> bool:
        """Whether all of them left records."""
        return all(one.joined for one in self.streams)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks; a name that both have is distinguished by its direction."""
        if self.reverse is None or self.forward is None:
            return tuple(check for one in self.streams for check in one.checks)
        named = (("forward", self.forward), ("reverse", self.reverse))
        return tuple(
            dataclasses.replace(
                check, name=f"{check.name}_sent_{way}", message=f"{way}: {check.message}"
            )
            for way, one in named
            for check in one.checks
        )

    def metrics(self, flow: int | None = None) -> Mapping[str, float | None]:
        """Return the figures of all flows together, or of one path."""
        one_path = all(len(one.joined) == 1 for one in self.streams)
        return self._total if flow is None or one_path else load_metrics(self, flow)

    @cached_property
    def _total(self) -> Mapping[str, float | None]:
        return load_metrics(self)

    @property
    def received_packet_s(self) -> tuple[float, ...]:
        """Packets per second that arrived, each way that has such a rate, as ``packet_rate`` is.

        Of an echo those whose reply did: it is the way back that may carry less.
        """
        rates = (_received(one.joined, echo=self.echo) for one in self.streams if one.joined)
        among = self.paths if self.each else 1
        return tuple(one / among for one in rates if one is not None)

    def offered_packet_s(self, *, of_one_path: bool) -> float:
        """Return what was asked for, each way: of all paths, or of one of them."""
        if of_one_path:
            return self.packet_rate if self.each else self.packet_rate / self.paths
        return self.packet_rate * self.paths if self.each else self.packet_rate


def run_load(
    context: TrialContext,
    params: LoadParams,
    *,
    way: Way,
    packet_rate: float,
    packets: int,
    late_ns: int | None = None,
) -> Loaded:
    """Send a load once; what dies is a failed check in what is returned."""
    ways = {
        "forward": [("forward", context)],
        "echo": [("forward", context)],
        "reverse": [("reverse", turned(context))],
        "both": [("forward", context), ("reverse", turned(context))],
    }[way]

    def one(place: int, context: TrialContext) -> Streamed:
        flows = plan(
            context,
            name=f"load/{ways[place][0]}",
            # Whole nanoseconds would be another rate than the one asked for and reported.
            gap_ns=Fraction(10**9) / Fraction(packet_rate),
            packets=packets,
            payload_bytes=params.payload,
            content=content_json(params.content, params.compressible_share),
            load=params.share,
        )
        return run_streams(
            context,
            flows,
            drain_ns=params.drain,
            late_ns=late_ns,
            answer=way == "echo",
            segment=params.segmentation,
        )

    streams = together([context for _, context in ways], one, failed=_unfinished)
    found = dict(zip((name for name, _ in ways), streams, strict=True))
    return Loaded(
        found.get("forward"),
        found.get("reverse"),
        packet_rate,
        way == "echo",
        paths=len(context.paths),
        each=params.share == "each",
    )


def _unfinished(streamed: Streamed) -> bool:
    return not streamed.finished


def load_metrics(loaded: Loaded, number: int | None = None) -> dict[str, float | None]:
    """Return the figures of a load by direction; the reverse ones of an echo are its replies'."""
    metrics: dict[str, float | None] = {}
    sent: list[float | None] = []
    for way, one in (("forward", loaded.forward), ("reverse", loaded.reverse)):
        if one is None or not one.joined:
            continue
        places = range(len(one.joined)) if number is None else (number,)
        flows = [one.joined[place] for place in places]
        reported = [one.reported[place] for place in places]
        # Nobody reports how the delay of a load without replies varies.
        figures = total_metrics(flows, reported, variation=loaded.echo)
        sent.append(sent_rate(flows))
        delays = np.concatenate([flow.delays_ns for flow in flows])
        if way == "forward":
            metrics |= figures
        else:
            metrics["goodput_reverse_bit_s"] = figures["goodput_bit_s"]
            metrics["loss_reverse_ratio"] = figures["loss_forward_ratio"]
            metrics["owd_reverse_p50_ns"] = figures["owd_forward_p50_ns"]
        metrics[f"received_{way}_packet_s"] = _received(flows)
        metrics[f"owd_{way}_p99_ns"] = tail(one_clock(delays), 99)
    metrics["offered_packet_s"] = loaded.offered_packet_s(of_one_path=number is not None)
    known = [rate for rate in sent if rate is not None]
    metrics["sent_packet_s"] = min(known, default=None)
    return metrics


def _received(flows: Sequence[Flow], *, echo: bool = False) -> float | None:
    if echo:
        return rate(sum(int(flow.returned.sum()) for flow in flows), flows, "returned")
    return rate(sum(int(flow.arrived.sum()) for flow in flows), flows, "arrived")


def lost(flow: Flow, delay_limit_ns: int | None, *, echo: bool = False) -> int:
    """Return the packets of a flow that did not arrive, or only after the delay limit.

    The limit is on the one-way delay above the smallest one of the flow. Of an ``echo`` it is on
    the round-trip delay, and packets whose reply did not come back are lost.
    """
    came = flow.returned if echo else flow.arrived
    missing = int((~came).sum())
    if delay_limit_ns is None or not came.any():
        return missing
    delays = _round_trips_ns(flow) if echo else flow.delays_ns
    return missing + int((delays - delays.min() > delay_limit_ns).sum())


def _round_trips_ns(flow: Flow) -> npt.NDArray[np.int64]:
    """Return the round trip of every packet that came back, less the residence time if known."""
    back = flow.returned
    residence = flow.residence_ns[back]
    known = np.where(residence == MISSING_NS, 0, residence)
    return np.asarray(flow.returned_ns[back] - flow.sent_ns[back] - known)


def details(loaded: Loaded) -> Mapping[str, object]:
    """Return what both ends counted, for the trial's details."""
    return {
        way: dict(one.details)
        for way, one in (("forward", loaded.forward), ("reverse", loaded.reverse))
        if one is not None
    }
