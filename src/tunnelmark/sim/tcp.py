"""Bulk transfers over TCP in virtual time: configured for the simulator, reported as by iperf3.

The simulator has ends of its own, since a kernel's are bound to its clock. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tunnelmark.engine import config
from tunnelmark.model.congestion import MODELLED
from tunnelmark.model.overhead import (
    IP_HEADER_BYTES,
    TCP_HEADER_BYTES,
    TCP_TIMESTAMPS_BYTES,
    UDP_HEADER_BYTES,
)
from tunnelmark.sim.carriage import WINDOW_BYTES, Carriage
from tunnelmark.sim.simulate import Connection, ConnectionSecond, Simulated
from tunnelmark.workloads.bulk import BulkEnds, BulkFlow
from tunnelmark.workloads.iperf3 import Report, Second

MODEL: Final = "modelled by RFC 5681, 6298, 6675 and 9438"
"""What stands where a lab has the version of iperf3."""
NOTE: Final = (
    "TCP is a model (RFC 5681, 6298, 6675, 9438), not a kernel's: it has no tail loss probe "
    "and no pacing"
)
DEFAULT_NOTE: Final = (
    f"where the study names no congestion control it is {MODELLED[0]}; a lab takes the "
    "default of its kernel, which may be another"
)
_HEADERS_BYTES: Final = TCP_HEADER_BYTES + TCP_TIMESTAMPS_BYTES
_OPENING_BYTES: Final = 40
"""TCP header of a SYN: MSS, SACK permitted, timestamps and window scale are 20 bytes of options."""
_SACK_BYTES: Final = (0, 12, 20, 28)
"""Options by number of blocks, with padding (RFC 2018 section 3)."""


def segment_bytes(carried: Carriage, mtu_bytes: int) -> int:
    """Return the payload of a full segment over a path with such an MTU.

    The MSS is the MTU without both headers (RFC 6691 section 2), or what the tunnel clamps it to;
    timestamps are taken from it.
    """
    mss = mtu_bytes - IP_HEADER_BYTES[carried.inner_ip] - TCP_HEADER_BYTES
    if carried.mss_clamp_bytes is not None:
        mss = min(mss, carried.mss_clamp_bytes)
    return mss - TCP_TIMESTAMPS_BYTES


def bulk_config(
    flows: Sequence[BulkFlow], carried: Carriage, *, seed: int, files_dir: str
) -> dict[str, object]:
    """Return the configuration of ``tunnelmark-engine sim`` for bulk transfers."""
    places = {path.name: number for number, path in enumerate(carried.paths)}
    segments = [segment_bytes(carried, path.mtu_bytes) for path in carried.paths]
    connections = [
        {
            "way": flow.direction,
            "path": (place := places[flow.path.name]),
            "segment_bytes": segments[place],
            "window_bytes": max(flow.window_bytes or WINDOW_BYTES, segments[place]),
            "congestion": flow.congestion or MODELLED[0],
            "seconds": flow.seconds,
        }
        for flow in flows
        for _ in range(flow.streams)
    ]
    return {
        "protocol": config.PROTOCOL,
        "seed": seed,
        **carried.link_json(files_dir),
        "paths": [carried.path_json(payloads(segment)) for segment in segments],
        "forward": None,
        "reverse": None,
        "tcp": connections,
    }


def bulk_ends(
    flows: Sequence[BulkFlow], carried: Carriage, found: Simulated
) -> tuple[BulkEnds, ...]:
    """Return what both ends of each flow would have reported."""
    left = {
        way: iter([one for one in found.tcp if one.way == way]) for way in ("forward", "reverse")
    }
    return tuple(
        _ends(
            flow,
            carried,
            [next(left[flow.direction]) for _ in range(flow.streams)],
            stopped=found.stopped,
        )
        for flow in flows
    )


def payloads(*segments: int) -> tuple[int, ...]:
    """Return the payloads of UDP datagrams that are as long as the packets of a connection.

    ``segments`` are the lengths of its segments.
    """
    lengths = (_OPENING_BYTES, *(_HEADERS_BYTES + n for n in (*segments, *_SACK_BYTES)))
    return tuple(length - UDP_HEADER_BYTES for length in lengths)


def _ends(
    flow: BulkFlow, carried: Carriage, connections: Sequence[Connection], *, stopped: bool
) -> BulkEnds:
    if not stopped and any(len(one.seconds) != flow.seconds for one in connections):
        words = f"a connection {flow.direction} on path {flow.path.name} was not opened"
        nothing = _report(flow, carried, (), error=words)
        return BulkEnds(nothing, nothing)
    sent, received = [], []
    for number, (length_s, streams) in enumerate(_together(connections)):
        rtts = [one.rtt_ns for one in streams if one.rtt_ns is not None]
        sent.append(
            Second(
                start_s=float(number),
                seconds=length_s,
                payload_bytes=sum(one.sent_bytes for one in streams),
                retransmits=sum(one.retransmits for one in streams),
                rtt_ns=sum(rtts) / len(rtts) if rtts else None,
                cwnd_bytes=float(sum(one.window_bytes for one in streams)),
            )
        )
        octets = sum(one.delivered_bytes for one in streams)
        received.append(Second(float(number), length_s, octets, None, None, None))
    return BulkEnds(_report(flow, carried, sent), _report(flow, carried, received))


def _together(
    connections: Sequence[Connection],
) -> Iterator[tuple[float, Sequence[ConnectionSecond]]]:
    """Return second by second its length and what the connections did in it.

    The last is the rest of those that were ended, as long as the longest: they were opened within
    some milliseconds, so one may have begun a second more than another.
    """
    whole = min(len(one.seconds) - (one.rest_ns is not None) for one in connections)
    for streams in zip(*(one.seconds[:whole] for one in connections), strict=True):
        yield 1.0, streams
    rest = [second for one in connections for second in one.seconds[whole:]]
    lengths = [
        len(one.seconds) - whole - 1 + one.rest_ns / 1e9
        for one in connections
        if one.rest_ns is not None
    ]
    if rest or not whole:
        yield max(lengths, default=0.0), rest


def _report(
    flow: BulkFlow, carried: Carriage, seconds: Sequence[Second], error: str | None = None
) -> Report:
    """Return one end's account: each end's bytes are those that it sent or received."""
    octets = sum(one.payload_bytes for one in seconds) if seconds else None
    again = [one.retransmits for one in seconds if one.retransmits is not None]
    span_s = sum(one.seconds for one in seconds) if seconds else None
    return Report(
        error=error,
        version=MODEL,
        mss_bytes=segment_bytes(carried, flow.path.mtu_bytes),
        congestion=flow.congestion or MODELLED[0],
        sent_bytes=octets,
        sent_s=span_s,
        received_bytes=octets,
        received_s=span_s,
        retransmits=sum(again) if again else None,
        seconds=tuple(seconds),
    )
