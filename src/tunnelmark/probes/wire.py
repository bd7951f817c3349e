"""Proof by wire: the packets on the link are the tunnel's, and nothing readable is among them.

Datagrams with known content go through the tunnel while a capture watches the link. The same
capture gives the overhead, the outer fragments and the fragmentation point.
"""

import ipaddress
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tunnelmark.model.block import ProofVerdict, WireProof, WireSample
from tunnelmark.model.host import Host
from tunnelmark.model.topology import MACS
from tunnelmark.model.tunnel import Endpoint, TrafficPath, WireRule
from tunnelmark.probes.asking import Asking
from tunnelmark.probes.attribution import Expected, Probe, anything, attribute
from tunnelmark.probes.capture import Capture, Captured, Reader
from tunnelmark.probes.carriers import Carrier, carriers
from tunnelmark.probes.fragmentation import LARGEST_BYTES, SMALLEST_BYTES, bracket
from tunnelmark.probes.judge import Judge, is_link_control, make_marker
from tunnelmark.probes.pcap import UDP, read_pcap
from tunnelmark.probes.sizes import Sizes


@dataclass(frozen=True)
class Sent:
    """What became of one batch of probes."""

    probes: tuple[Probe, ...]
    """In order of sending, with the times at which they were really sent."""
    arrived: int
    """How many the other end of the path received."""
    returned: int
    """How many of its replies came back."""


class Prober(Protocol):
    """Sends probes through one path and has them answered by its other end."""

    @property
    def port(self) -> int:
        """UDP port to which the probes go."""

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        """Send each size ``repeats`` times, spaced irregularly, filled with the marker."""

    def widen(self) -> None:
        """Keep probes further apart from now on: it was unknown whose packets were on the link."""


@dataclass(frozen=True)
class Watch:
    """Where the proof looks, and whose packets count as going forward."""

    host: Host
    interface: str
    """The link's interface on the client's side."""
    client: Endpoint
    mac: str = MACS["client"]
    """Of the client's interface, for frames that are not IP."""
    read: Reader = read_pcap
    """Knows the link layer of the interface."""
    housekeeping: tuple[WireRule, ...] = ()
    """Rules of what the medium itself sends."""
    behind_loss: bool = False
    """Whether packets of the other end may be lost on the way to where it looks."""


def prove(
    path: TrafficPath,
    rule: WireRule,
    *,
    prober: Prober,
    watch: Watch,
    payload_sizes: Sequence[int],
    seed: int,
    idle: Sequence[WireRule] = (),
    repeats: int = 3,
    keep: Callable[[str, bytes], None] = lambda _name, _pcap: None,
    search: bool = True,
    expected_bytes: int | None = None,
    expected: Expected = anything,
    once: bool = False,
) -> WireProof:
    """Send probes through a path and judge what a capture on the link shows of them.

    ``payload_sizes`` (bytes) are those of the study; ``search``, ``expected_bytes``,
    ``expected`` and ``once`` are as ``Asking`` takes them. ``seed`` makes the marker. ``idle`` are
    the rules of tunnels that are up beside this path: a keepalive of theirs is not foreign.
    ``keep`` is called with (name without an ending, pcap file) for each capture.

    Raises ``LabError`` if the capture or the sender does not work; a tunnel that fails the proof is
    no exception but a ``WireProof`` that is not ``ok``.
    """
    marker = make_marker(seed)
    judge = Judge(
        _with_port(rule, prober.port),
        marker,
        (*idle, *watch.housekeeping),
        behind_loss=watch.behind_loss,
    )
    # A tunnel and the baseline beside it have paths of the same name: their files must not.
    what = "baseline" if idle else "tunnel" if search else "end"
    name = f"proof-{what}-{path.name}"
    ours = client_addresses(watch.client, [path])
    bench = _Bench(name, prober, watch, ours, marker, repeats, keep, rule)
    asking = Asking(
        payload_sizes,
        rule,
        ip_version=ipaddress.ip_address(path.client_address).version,
        inner_mtu_bytes=path.mtu_bytes,
        # Whatever the overhead, that much goes in one packet, of which nothing can be cut off.
        one_packet_bytes=min(path.mtu_bytes, watch.client.mtu_bytes - _MOST_OVERHEAD_BYTES),
        search=search,
        expected_bytes=expected_bytes,
        expected=expected,
        once=once,
    )
    tally = _Tally()
    while sizes := asking.batch():
        batch = bench.run(tally.batches, sizes)
        judge.look_at(batch.captured.frames)
        tally.add(batch)
        if not asking.answer(batch.probes, batch.parts, whole=batch.whole):
            # Further apart they tell more than they did.
            prober.widen()
    lengths = asking.lengths
    known = bracket(lengths)
    samples = tuple(
        WireSample(size, lengths[size])
        for size in sorted({*asking.seen.wanted, *((known.low, known.high) if known.point else ())})
        if size in lengths
    )
    unseen = _unseen(tally, judge, asking.lost(), stream=bool(rule.tcp_ports))
    wrong = _wrong(tally, judge, asking.seen)
    return WireProof(
        path=path.name,
        verdict=ProofVerdict.SAW_WRONG
        if wrong
        else ProofVerdict.COULD_NOT_SEE
        if unseen
        else ProofVerdict.PROVED,
        message="; ".join([*unseen, *wrong])
        or _summary(judge, tally, known.point, searched=search),
        packets=judge.packets,
        foreign_packets=judge.foreign,
        marker_seen=judge.readable > 0,
        encrypted_expected=rule.encrypted,
        samples=samples,
        fragmentation_point_bytes=known.point,
        traffic_class=_usual(tally.classes),
    )


_NEARLY_ALL: Final = 10
"""All but one of so many."""
_MOST_OVERHEAD_BYTES: Final = 200
"""More than any tunnel puts around a packet."""


@dataclass(frozen=True)
class _Batch:
    """One batch of probes as it was seen on the link."""

    sent: Sent
    captured: Captured
    probes: tuple[Probe, ...]
    """Those of the sizes that were asked for."""
    parts: tuple[tuple[Carrier, ...], ...] | None
    """The packets of each probe; None when they could not be distinguished."""
    forward_bytes: int
    """On the link in their direction, whichever probe they belong to."""

    @property
    def whole(self) -> bool:
        """Whether the capture has everything that passed."""
        return not self.captured.dropped and not self.captured.full


@dataclass
class _Tally:
    """What became of all probes."""

    sent: int = 0
    arrived: int = 0
    returned: int = 0
    batches: int = 0
    whole: int = 0
    """Batches of which the capture has everything."""
    dropped: int = 0
    attributed: bool = False
    payload_bytes: int = 0
    """Of all probes of the whole batches."""
    seen_bytes: int = 0
    """On the link in their direction, meanwhile."""
    classes: Counter[int | None] = field(default_factory=Counter)
    """Traffic classes of the probes' packets in the whole batches."""

    def add(self, batch: _Batch) -> None:
        self.sent += len(batch.sent.probes)
        self.arrived += batch.sent.arrived
        self.returned += batch.sent.returned
        self.batches += 1
        self.whole += batch.whole
        self.dropped += batch.captured.dropped
        self.attributed |= batch.parts is not None
        if batch.whole:
            for part in batch.parts or ():
                self.classes.update(one.traffic_class for one in part)
            self.payload_bytes += sum(probe.payload_bytes for probe in batch.sent.probes)
            self.seen_bytes += batch.forward_bytes

    def faults(self) -> list[str]:
        """Return why what was seen proves nothing, as sentences with figures."""
        faults = []
        if not self.whole:
            faults.append(
                f"none of {self.batches} captures is whole ({self.dropped} packets dropped by the "
                "kernel), so there is no proof"
            )
        if not self.sent:
            faults.append("no probe packet was sent")
        elif not self.arrived:
            faults.append(f"none of {self.sent} probes arrived at the other end of the path")
        if self.sent and not self.attributed:
            faults.append(
                f"the packets on the link do not match the timing of the {self.sent} probes"
            )
        return faults


@dataclass(frozen=True)
class _Bench:
    """What every batch is run with."""

    name: str
    prober: Prober
    watch: Watch
    ours: frozenset[str]
    """Addresses from which packets go forward."""
    marker: bytes
    repeats: int
    keep: Callable[[str, bytes], None]
    rule: WireRule

    def run(self, number: int, sizes: Sequence[int]) -> _Batch:
        name = f"{self.name}-{number}"
        watch = self.watch
        # What a stream has left of a long datagram goes with the next one: the next longer one, as
        # they are in order, and behind the longest with one that nobody asked for.
        stream = bool(self.rule.tcp_ports)
        last = next(size for size in itertools.count(SMALLEST_BYTES) if size not in sizes)
        order = (last, *sorted(sizes)) if stream else sizes
        with Capture(watch.host, watch.interface, name=name, read=watch.read) as capture:
            sent = self.prober.send(order, marker=self.marker, repeats=self.repeats)
            captured = capture.stop()
        self.keep(name, captured.pcap)
        frames = [frame for frame in captured.frames if not is_link_control(frame)]
        forward = carriers(frames, rule=self.rule, addresses=self.ours, mac=self.watch.mac)
        forward_bytes = sum(carrier.ip_bytes for carrier in forward)
        parts = attribute(sent.probes, forward)
        own = [at for at, probe in enumerate(sent.probes) if probe.payload_bytes in sizes]
        return _Batch(
            sent,
            captured,
            tuple(sent.probes[at] for at in own),
            None if parts is None else tuple(parts[at] for at in own),
            forward_bytes,
        )


def _unseen(tally: _Tally, judge: Judge, lost: Mapping[int, int], *, stream: bool) -> list[str]:
    """Return why what was seen proves nothing; ``lost`` is how often each size was sent in vain."""
    unseen = tally.faults()
    if not judge.packets:
        unseen.append("no packet was seen on the link")
    # A stream may send the end of every long payload with the next one: what it held is all there.
    if lost and not (stream and tally.seen_bytes >= tally.payload_bytes):
        size, attempts = next(iter(lost.items()))
        unseen.append(
            f"not all packets of a payload of {size} bytes were seen on the link, in none of "
            f"{attempts} attempts"
        )
    return unseen


def _wrong(tally: _Tally, judge: Judge, seen: Sizes) -> list[str]:
    """Return what was seen that must not be."""
    wrong = judge.faults() + (seen.ciphertext.faults() if judge.rule.encrypted else [])
    if tally.arrived:
        # Of probes that did not come, what was seen on the link says nothing.
        wrong += judge.missing()
        wrong += [] if seen.bypassed is None else [_bypassed(seen.bypassed, judge.rule)]
    return wrong


def client_addresses(client: Endpoint, paths: Iterable[TrafficPath]) -> frozenset[str]:
    """Return the client's on the link; a path may have one of its own beside the usual.

    As those of captured packets are written.
    """
    texts = (client.ipv4, client.ipv6, *(path.link_address for path in paths))
    return frozenset(str(ipaddress.ip_address(text)) for text in texts if text is not None)


def _with_port(rule: WireRule, port: int) -> WireRule:
    """Return the rule; where nothing wraps the probes, they are all that may be on the link."""
    if rule.encrypted or rule.udp_ports or rule.tcp_ports or UDP not in rule.ip_protocols:
        return rule
    return replace(
        rule, udp_ports=(port,), describe=f"UDP to or from port {port}, that of the probes"
    )


def _usual(classes: Counter[int | None]) -> int | None:
    """Return what nearly all have: a packet of the tunnel's own is now and then among them."""
    usual, count = next(iter(classes.most_common(1)), (None, 0))
    return usual if count * _NEARLY_ALL >= classes.total() * (_NEARLY_ALL - 1) else None


def _bypassed(sample: WireSample, rule: WireRule) -> str:
    """Return the fault where less went over the link than probes hold: they went another way."""
    return (
        f"a payload of {sample.payload_bytes} bytes that cannot be compressed took "
        f"{sum(sample.outer_packet_bytes)} bytes on the link, so it is not what passed there as "
        f"{rule.describe}"
    )


def _summary(judge: Judge, tally: _Tally, point: int | None, *, searched: bool) -> str:
    read = (
        "the plaintext marker is not readable"
        if judge.rule.encrypted
        else f"the plaintext marker is readable in {judge.readable}, as expected without encryption"
    )
    where = (
        "sizes are not judged, since compression depends on earlier packets"
        if judge.rule.compresses
        else f"one packet up to {point} bytes of payload"
        if point is not None
        else "the fragmentation point was not searched for"
        if not searched
        else "a stream that does not show where packets are cut"
        if judge.rule.tcp_ports
        else f"no fragmentation point from {SMALLEST_BYTES} to {LARGEST_BYTES} bytes of payload"
    )
    return (
        f"{judge.packets} packets, all {judge.rule.describe}; {read}; {where}; "
        f"{tally.arrived} of {tally.sent} probes arrived, {tally.returned} replies returned"
    )
