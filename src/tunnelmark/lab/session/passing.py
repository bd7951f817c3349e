"""Captures at both ends of the link during a trial: delay by place, packets by size.

Only where a study asks for it (``[probes]``): a capture takes CPU from what is measured.
"""

import ipaddress
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tunnelmark.engine import records
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import LocalPlace
from tunnelmark.model.block import WireProof
from tunnelmark.model.errors import LabError, TunnelmarkError
from tunnelmark.model.rules import Probes
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.probes.capture import Capture, Captured
from tunnelmark.probes.split import PARTS, Mark, Split, marks, sizes, split
from tunnelmark.probes.wire import client_addresses
from tunnelmark.workloads.base import Outcome
from tunnelmark.workloads.quantiles import quantile, tail

WAYS: Final = ("forward", "reverse")
_ENDS: Final = ("client", "server")
_CLOCK_ERROR_NS: Final = 1_000_000
"""So far the real-time clock may move against the steady one during a trial."""
_QUANTILES: Final = ((50, quantile), (99, tail))


@dataclass
class Passed:
    """What was captured during a trial."""

    captured: dict[str, Captured] = field(default_factory=dict)
    """By end of the link."""
    reason: str = ""
    """Why there is nothing, if there is not."""
    wanted: bool = True
    offset_ns: int = 0
    """Real time minus steady time."""


@contextmanager
def watching(lab: Lab, probes: Probes, name: str) -> Iterator[Passed]:
    """Capture at both ends while the body runs; what cannot be captured is a reason, no error."""
    passed = Passed(wanted=probes.capture_packets > 0)
    if not passed.wanted:
        yield passed
        return
    if not isinstance(lab.place, LocalPlace):
        passed.reason = "the ends of the link have separate clocks"
        yield passed
        return
    if len(lab.clients) > 1:
        passed.reason = "a gateway has several clients, and packets are followed from one"
        yield passed
        return
    hosts = dict(zip(_ENDS, (lab.client_host, lab.server_host), strict=True))
    captures = {
        end: Capture(host, "eth0", name=f"{name}-{end}", max_packets=probes.capture_packets)
        for end, host in hosts.items()
    }
    with ExitStack() as stack:
        try:
            for capture in captures.values():
                stack.enter_context(capture)
        except LabError as error:
            passed.reason = str(error)
        before_ns = _offset_ns()
        yield passed
        passed.offset_ns = _offset_ns()
        if abs(passed.offset_ns - before_ns) > _CLOCK_ERROR_NS:
            passed.reason = passed.reason or "the real-time clock was set during the trial"
        if not passed.reason:
            _stop(captures, passed, probes.capture_packets)
    for end, host in hosts.items():
        # One for each trial: the machine's memory is not theirs.
        host.run(["rm", "-f", str(host.work_dir / "captures" / f"{name}-{end}.pcap")], check=False)


def _stop(captures: Mapping[str, Capture], passed: Passed, limit: int) -> None:
    for end, capture in captures.items():
        try:
            captured = passed.captured[end] = capture.stop()
        except LabError as error:
            passed.reason = str(error)
            continue
        if captured.dropped:
            passed.reason = f"the capture at the {end} missed {captured.dropped} packets"
        elif captured.full:
            passed.reason = f"the capture at the {end} reached its limit of {limit} packets"


@dataclass(frozen=True)
class Findings:
    """What the captures of a trial say."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    details: Mapping[str, object] = field(default_factory=dict)


def findings(
    passed: Passed,
    lab: Lab,
    outcome: Outcome,
    *,
    paths: Sequence[TrafficPath],
    proofs: Sequence[WireProof],
    payload_sizes: Sequence[int],
    samples_dir: Path | None,
) -> Findings:
    """Return delay by place and packets by size; a check says what is missing.

    ``paths`` are those of the traffic: some have addresses of their own on the link.
    """
    if not passed.wanted:
        return Findings()
    if passed.reason or set(passed.captured) != set(_ENDS):
        return Findings(checks=(_said(passed.reason or "there is no capture"),))
    addresses = _addresses(lab, paths)
    seen = {way: sizes(passed.captured["client"].frames, addresses[way]) for way in WAYS}
    packets = sum(one.packets for one in seen.values())
    metrics: dict[str, float | None] = {
        # What is no IP packet is not counted; a tunnel of such frames has none, and not 0 of them.
        "wire_packets_per_datagram": _per(
            packets, outcome.payload_packets + outcome.outside_packets
        )
        if packets
        else None,
        "wire_fragments_ratio": _per(sum(one.fragments for one in seen.values()), packets),
    }
    details: dict[str, object] = {"packets": {way: asdict(one) for way, one in seen.items()}}
    flow = _flow(outcome, samples_dir)
    length = _outer_bytes(proofs, payload_sizes)
    if isinstance(flow, str) or isinstance(length, str):
        why = flow if isinstance(flow, str) else str(length)
        return Findings(metrics, (_said(why),), details)
    checks = []
    for way in WAYS:
        replies = flow.turned == (way == "forward")
        near, far = _ENDS if way == "forward" else _ENDS[::-1]
        left = marks(passed.captured[near].frames, sources=addresses[way], ip_bytes=length)
        # A router may have translated the source: what the far end did not send came to it.
        own = addresses[WAYS[way == "forward"]]
        arrived = passed.captured[far].frames
        others = frozenset(f.source for f in arrived) - own
        came = marks(arrived, sources=others, ip_bytes=length)
        found = _way(flow.records, replies, left, came, passed.offset_ns)
        if found is None:
            continue
        if isinstance(found, str):
            checks.append(_said(f"{way}: {found}", way))
            continue
        metrics |= {
            f"delay_{way}_{part}_p{percent}_ns": of(getattr(found, part), percent)
            for part in PARTS
            for percent, of in _QUANTILES
        }
        words = f"{way}: {len(found.link)} packets followed through sender, link and receiver"
        checks.append(Check(f"delay_split_{way}", ok=True, message=words))
    return Findings(metrics, tuple(checks), details)


def _addresses(lab: Lab, paths: Sequence[TrafficPath]) -> dict[str, frozenset[str]]:
    """Return the sources of each direction, as the client's end of the link has them."""
    # In transport mode the addresses on the link are those of the datagrams, at both ends.
    bare = {
        str(ipaddress.ip_address(path.server_address))
        for path in paths
        if path.link_address == path.client_address
    }
    return {
        "forward": client_addresses(lab.client, paths),
        "reverse": frozenset({lab.server.advertised("ipv4"), lab.server.advertised("ipv6"), *bare}),
    }


@dataclass(frozen=True)
class _Flow:
    """The one stream of a trial."""

    records: records.Flow
    turned: bool
    """Whether the server is the sender."""


def _way(
    flow: records.Flow,
    replies: bool,
    left: Sequence[Mark],
    came: Sequence[Mark],
    offset_ns: int,
) -> Split | str | None:
    """Return the parts of what was sent, or of its ``replies``; None where there were none."""
    if not replies:
        sent, received_ns, received = flow.sent_ns, flow.arrived_ns, flow.arrived
    else:
        asked = flow.answered
        if not asked.any():
            return None
        sent, received_ns = flow.answered_ns[asked], flow.returned_ns[asked]
        received = flow.returned[asked]
    return split(
        sent + offset_ns,
        received_ns + offset_ns,
        received,
        left,
        came,
        clock_error_ns=_CLOCK_ERROR_NS,
    )


def _flow(outcome: Outcome, samples_dir: Path | None) -> _Flow | str:
    """Return the one flow of the trial's records, or why there is none."""
    send = [name for name in outcome.samples if name.endswith(".send.rec")]
    reflect = [name for name in outcome.samples if name.endswith(".reflect.rec")]
    if samples_dir is None or len(send) != 1 or len(reflect) != 1:
        return "the delay by place needs one stream whose packets are all recorded"
    try:
        sent = records.read_send((samples_dir / send[0]).read_bytes(), send[0])
        seen = records.read_reflect((samples_dir / reflect[0]).read_bytes(), reflect[0])
    except (OSError, TunnelmarkError) as error:
        return str(error)
    flows = {int(number) for number in sent["flow"]}
    if len(flows) != 1:
        return f"the trial has {len(flows)} streams; the delay by place needs exactly one"
    turned = send[0].removesuffix(".send.rec").endswith(records.TURNED)
    return _Flow(records.join(sent, seen, flows.pop()), turned)


def _outer_bytes(proofs: Sequence[WireProof], payload_sizes: Sequence[int]) -> int | str:
    """Return the length of the one packet on the link that carries a datagram."""
    if len(payload_sizes) != 1:
        return "the delay by place needs datagrams of one size"
    for sample in proofs[0].samples if proofs else ():
        if sample.payload_bytes == payload_sizes[0]:
            if sample.fragments == 1:
                return sample.outer_packet_bytes[0]
            return f"a datagram is {sample.fragments} packets on the link"
    return "the proof by wire did not find the packet size on the link"


def _said(why: str, way: str = "") -> Check:
    """Say why a figure is missing; the trial is none the worse for it."""
    name = f"delay_split_{way}" if way else "delay_split"
    return Check(name, ok=True, message=f"no delay by place: {why}")


def _offset_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


def _per(value: float, whole: float) -> float | None:
    return value / whole if whole > 0 else None
