"""The link emulator with real packets: rate, delay, queue, loss, and what it counts."""

import ctypes
import itertools
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tunnelmark.engine.link import AnyLinkSpec, BaseSpec
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost, NetnsHost
from tunnelmark.lab.lab import Lab
from tunnelmark.model.topology import CLIENT_IPV4, SERVER_IPV4, SERVER_IPV6, Topology

pytestmark = pytest.mark.lab

T = TypeVar("T")

PORT = 7800
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_UDP_SEGMENT = 103
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_UDP_OVER_ETHERNET_BYTES = 14 + 20 + 8
WAY = {
    "rate_bit_s": None,
    "delay_ns": 0,
    "queue": {"type": "bytes", "limit": 65_536},
    "frame_overhead_bytes": -14,
    "frame_min_bytes": 0,
    "loss": {"type": "none"},
    "delay_variation": {"type": "none"},
    "reorder": False,
}
"""A direction that changes nothing."""
SERIAL = {**WAY, "rate_bit_s": 8_000_000, "delay_ns": 20_500_000}
"""8 Mbit/s with half of a round trip of 41 ms."""


@dataclass(frozen=True)
class Spec(BaseSpec):
    """The engine's configuration, as it is written to it."""

    forward: Mapping[str, object]
    reverse: Mapping[str, object]
    seed: int = 1

    files: Mapping[str, bytes] = field(default_factory=dict)
    has_schedule = True

    def _medium(self, files_dir: str) -> dict[str, object]:
        forward = dict(self.forward)
        if self.files:
            forward["trace"] = {"path": f"{files_dir}/forward.trace"}
        return {"a_to_b": forward, "b_to_a": self.reverse, "seed": self.seed}


class Line:
    """A lab with the emulator, and sockets inside its namespaces."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        with _inside(lab.client_host):
            self.client = _socket(CLIENT_IPV4)
        with _inside(lab.server_host):
            self.server = _socket(SERVER_IPV4)
        self.before: Sequence[Mapping[str, Any]] = ({}, {})

    def quiet(self) -> None:
        """Nothing but the test's own frames from now on, and counters from 0."""
        for host in (self.lab.client_host, self.lab.server_host):
            # reports of IPv6 multicast groups come seconds after an interface is up
            host.run(["sysctl", "-eqw", "net.ipv6.conf.eth0.disable_ipv6=1"])
        self.before = self.settled()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.lab.down()

    def send(self, payload: bytes, *, back: bool = False) -> int:
        """Send a datagram; return when, on the clock of the kernel's timestamps, in ns."""
        sender, target = (self.server, CLIENT_IPV4) if back else (self.client, SERVER_IPV4)
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        sender.sendto(payload, (target, PORT))
        return now

    def received(self, *, back: bool = False, wait_s: float = 1.0) -> list[tuple[int, bytes]]:
        """Everything that arrives until nothing more does for ``wait_s``: (ns, payload)."""
        receiver = self.client if back else self.server
        receiver.settimeout(wait_s)
        found: list[tuple[int, bytes]] = []
        while True:
            try:
                payload, ancillary, _flags, _address = receiver.recvmsg(2048, 64)
            except TimeoutError:
                return found
            ((_level, _kind, stamp),) = ancillary
            seconds, ns = struct.unpack("qq", stamp)
            found.append((seconds * 10**9 + ns, payload))

    def counters(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Both directions; every frame is accounted for, or the test fails here."""
        counters = self.lab.counters()
        assert counters is not None
        for way in (counters.forward, counters.reverse):
            ended = way["delivered"] + way["queue_dropped"] + way["lost"]
            assert way["offered"] + way["duplicated"] == ended + way["in_flight"]
            assert way["capture_dropped"] == way["send_errors"] == 0
        forward, reverse = (
            {
                key: value - before.get(key, 0) if isinstance(value, int) else value
                for key, value in way.items()
            }
            for way, before in zip((counters.forward, counters.reverse), self.before, strict=True)
        )
        return forward, reverse

    def settled(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The counters when nothing is under way any more."""
        return _until(self.counters, lambda both: all(way["in_flight"] == 0 for way in both))


Make = Callable[..., Line]


@pytest.fixture
def line(ledger: Ledger, engine: str) -> Iterator[Make]:
    made: list[Line] = []

    def make(
        forward: Mapping[str, object] = WAY,
        reverse: Mapping[str, object] = WAY,
        *,
        seed: int = 1,
        quiet: bool = True,
        files: Mapping[str, bytes] | None = None,
    ) -> Line:
        while made:  # one lab at a time
            made.pop().close()
        spec = cast("AnyLinkSpec", Spec(forward, reverse, seed, files or {}))
        made.append(Line(Lab(ledger, Topology(), spec, engine=engine)))
        if quiet:
            made[-1].quiet()
        return made[-1]

    yield make
    while made:
        made.pop().close()


@pytest.mark.timing
def test_the_round_trip_is_41_ms_and_the_time_on_the_wire(line: Make) -> None:
    one = line(SERIAL, SERIAL)
    rtts_ms = _ping(one, SERVER_IPV4, count=30)
    # an echo of 56 bytes is 84 bytes with both headers: 84 us each way
    expected = 41 + 2 * 0.084
    assert min(rtts_ms) >= expected - 0.001
    assert statistics.median(rtts_ms) == pytest.approx(expected, rel=0.01)


@pytest.mark.timing
def test_a_packet_of_1500_byte_is_on_the_wire_for_1500_us(line: Make) -> None:
    one = line(SERIAL, SERIAL)
    delays_ns: dict[int, list[int]] = {72: [], 1472: []}
    for _ in range(15):
        for payload_bytes, delays in delays_ns.items():
            sent = one.send(bytes(payload_bytes))
            # a long pause: each packet meets an idle link
            ((arrived, _),) = one.received(wait_s=0.06)
            delays.append(arrived - sent)
    for payload_bytes, delays in delays_ns.items():
        expected_ns = 20_500_000 + (payload_bytes + 28) * 1000
        assert expected_ns <= min(delays) < expected_ns * 1.01
    # 1400 bytes more at 8 Mbit/s
    assert min(delays_ns[1472]) - min(delays_ns[72]) == pytest.approx(1_400_000, rel=0.05)


@pytest.mark.timing
def test_a_saturated_link_carries_its_rate(line: Make) -> None:
    one = line(SERIAL, SERIAL)
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        one.send(bytes(1472))
        time.sleep(0.001)
    arrived = one.received()
    assert one.settled()[0]["queue_dropped"] > 0, "not saturated"
    seconds = (arrived[-1][0] - arrived[0][0]) / 1e9
    assert (len(arrived) - 1) * 1500 * 8 / seconds == pytest.approx(8e6, rel=0.01)


@pytest.mark.timing
def test_the_queue_holds_its_limit_and_no_byte_more(line: Make) -> None:
    # 1000 bytes take 0.4 s at 20 kbit/s: nothing leaves while the burst comes in
    queue = {"type": "bytes", "limit": 10_000}
    one = line({**WAY, "rate_bit_s": 20_000, "queue": queue})
    for _ in range(30):
        one.send(bytes(1000 - 28))
    # one is being sent, ten wait
    assert _until(one.counters, lambda both: both[0]["offered"] == 30)[0]["queue_dropped"] == 19
    queue["limit"] = 9_999
    other = line({**WAY, "rate_bit_s": 20_000, "queue": queue})
    for _ in range(30):
        other.send(bytes(1000 - 28))
    assert _until(other.counters, lambda both: both[0]["offered"] == 30)[0]["queue_dropped"] == 20


@pytest.mark.timing
def test_loss_forward_is_loss_forward_only(line: Make) -> None:
    one = line({**WAY, "loss": {"type": "independent", "probability": 0.02}})
    frames = 10_000
    arrived = {}
    for back in (False, True):
        for _ in range(frames // 100):
            for _ in range(100):
                one.send(bytes(100), back=back)
            time.sleep(0.002)
        arrived[back] = len(one.received(back=back))
    forward, reverse = one.settled()
    assert forward["offered"] == reverse["offered"] == frames
    # 200 with a standard deviation of 14: four of them
    assert forward["lost"] == pytest.approx(200, abs=56)
    assert arrived[False] == frames - forward["lost"]
    assert reverse["lost"] == 0
    assert arrived[True] == frames


@pytest.mark.timing
def test_copies_damage_and_overtaking_are_as_often_as_asked(line: Make) -> None:
    one = line(
        {
            **WAY,
            "delay_ns": 1_000_000,
            "duplicate": 0.1,
            "corrupt": 0.05,
            "hold_back": {"probability": 0.1, "extra_ns": 20_000_000},
        }
    )
    frames = 2_000
    for number in range(frames):
        one.send(struct.pack("!I", number) + bytes(96))
        time.sleep(0.0004)
    came = [struct.unpack("!I", payload[:4])[0] for _, payload in one.received()]
    forward, _ = one.settled()
    # A damaged frame has a wrong checksum, so the kernel of the far end drops it, copy and all.
    assert forward["duplicated"] == pytest.approx(frames * 0.1, abs=54)
    assert forward["corrupted"] == pytest.approx(frames * 0.05, abs=39)
    assert forward["held_back"] == pytest.approx(frames * 0.1, abs=54)
    assert len(came) >= frames + forward["duplicated"] - 2 * forward["corrupted"]
    assert len(came) <= frames + forward["duplicated"] - forward["corrupted"] * 0.8
    overtaken = sum(after < before for before, after in itertools.pairwise(came))
    assert overtaken > 50
    assert forward["delivered"] == frames + forward["duplicated"]


@pytest.mark.timing
def test_a_link_changes_when_its_schedule_says_and_begins_anew(line: Make) -> None:
    changes = [
        {"at_ns": 300_000_000, "delay_ns": 80_000_000},
        {"at_ns": 600_000_000, "loss": {"type": "independent", "probability": 1.0}},
    ]
    one = line({**WAY, "delay_ns": 5_000_000, "changes": changes})
    for _ in range(2):
        one.lab.begin()
        begin = time.monotonic()
        sent: dict[int, tuple[float, Any]] = {}
        while (passed := time.monotonic() - begin) < 0.9:
            number = len(sent)
            sent[number] = (passed, one.send(struct.pack("!I", number)))
            time.sleep(0.002)
        came = {struct.unpack("!I", load)[0]: at for at, load in one.received(wait_s=0.3)}
        # The emulator begins at the signal, up to some ms after the call here.
        for number, (passed, at) in sent.items():
            if 0.1 < passed < 0.28:
                assert 5e6 <= came[number] - at < 60e6
            elif 0.4 < passed < 0.58:
                assert 80e6 <= came[number] - at < 140e6
            elif passed > 0.7:
                assert number not in came


@pytest.mark.timing
def test_recent_lateness_is_that_of_every_frame_since_the_beginning(line: Make) -> None:
    """However often it was asked for in between."""
    one = line(WAY)

    def judged() -> int:
        counters = one.lab.counters()
        assert counters is not None
        return int((counters.forward["lateness_recent_ns"] or {"count": 0})["count"])

    assert one.lab.begin() is not None
    assert judged() == 0
    for sent in (10, 20):
        for _ in range(10):
            one.send(bytes(100))
        one.received(wait_s=0.2)
        assert judged() == sent
    one.lab.begin()
    assert judged() == 0


@pytest.mark.timing
def test_a_trace_gives_the_rate(line: Make) -> None:
    # Two packets of 1500 bytes every 2 ms.
    one = line(
        {**WAY, "frame_overhead_bytes": -10}, files={"forward.trace": b"2\n2\n4\n4\n6\n6\n8\n8\n"}
    )
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        one.send(bytes(1472))
        time.sleep(0.0003)
    arrived = one.received()
    assert one.settled()[0]["queue_dropped"] > 0, "not saturated"
    seconds = (arrived[-1][0] - arrived[0][0]) / 1e9
    assert (len(arrived) - 1) / seconds == pytest.approx(1000, rel=0.01)


@pytest.mark.paced
def test_the_same_seed_loses_the_same_packets(line: Make) -> None:
    lossy = {**WAY, "loss": {"type": "independent", "probability": 0.3}}

    def lost_of(seed: int) -> set[int]:
        """Numbers of lost frames as the link counts them, of those that every run has."""
        one = line(lossy, lossy, seed=seed)
        earlier = one.before[0]["offered"]
        assert earlier < 20
        for number in range(200):
            one.send(struct.pack("!I", number))
            time.sleep(0.0002)
        came = {struct.unpack("!I", payload)[0] for _, payload in one.received(wait_s=0.3)}
        return {number + earlier for number in set(range(200)) - came} & set(range(20, 200))

    first = lost_of(5)
    assert 30 < len(first) < 80
    assert lost_of(5) == first
    assert lost_of(6) != first


@pytest.mark.paced
def test_frames_are_conserved_while_they_are_under_way_and_when_it_ends(line: Make) -> None:
    one = line({**WAY, "delay_ns": 3_000_000_000}, {**WAY, "delay_ns": 1_000_000})
    for _ in range(50):
        one.send(bytes(100))
        one.send(bytes(100), back=True)
    forward, _ = _until(one.counters, lambda both: both[0]["offered"] == 50)
    assert forward["in_flight"] == 50
    _, reverse = _until(one.counters, lambda both: both[1]["in_flight"] == 0)
    assert reverse["delivered"] == reverse["offered"] == 50
    assert reverse["delivered_bytes"] == reverse["offered_bytes"]
    assert reverse["delivered_bytes"] == 50 * (100 + _UDP_OVER_ETHERNET_BYTES)
    assert reverse["lateness_ns"]["count"] == 50


@pytest.mark.timing
def test_variation_keeps_the_order_unless_it_may_not(line: Make) -> None:
    varied = {
        **WAY,
        "delay_ns": 5_000_000,
        "delay_variation": {"type": "uniform", "spread_ns": 20_000_000},
    }

    def order(reorder: bool) -> list[int]:
        one = line({**varied, "reorder": reorder})
        for number in range(300):
            one.send(struct.pack("!I", number))
            time.sleep(0.0005)
        return [struct.unpack("!I", payload)[0] for _, payload in one.received(wait_s=0.5)]

    assert order(reorder=False) == list(range(300))
    mixed = order(reorder=True)
    assert sorted(mixed) == list(range(300))
    assert mixed != sorted(mixed)


@pytest.mark.paced
def test_ipv6_and_address_resolution_pass(line: Make) -> None:
    one = line(SERIAL, SERIAL, quiet=False)
    for host in (one.lab.client_host, one.lab.server_host):
        host.run(["ip", "neighbour", "flush", "dev", "eth0", "nud", "permanent"])
        host.run(["ip", "link", "set", "dev", "eth0", "multicast", "on"])
    assert len(_ping(one, SERVER_IPV4, count=5)) == 5
    assert len(_ping(one, SERVER_IPV6, count=5)) == 5
    neighbours = json.loads(one.lab.client_host.run(["ip", "-j", "neighbour"]).stdout)
    assert {entry["dst"] for entry in neighbours} >= {SERVER_IPV4, SERVER_IPV6}


@pytest.mark.paced
def test_vlan_tags_pass(line: Make) -> None:
    one = line()
    with _inside(one.lab.client_host):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with _inside(one.lab.server_host):
        receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    with sender, receiver:
        receiver.bind(("eth0", _ETH_P_ALL))
        receiver.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        receiver.settimeout(5)
        # the longest there is: 1500 bytes behind the tag
        frame = b"\x02" * 12 + struct.pack("!HHH", 0x8100, 0xA009, 0x88B5) + bytes(1500)
        sender.bind(("eth0", 0))
        sender.send(frame)
        payload, ancillary, _flags, _address = receiver.recvmsg(2048, 128)
    # the kernel takes the tag off and hands it over beside the frame
    ((_level, _kind, data),) = ancillary
    _status, length, _kept, _mac, _net, tag, kind = struct.unpack("IIIHHHH", data)
    assert (tag, kind) == (0xA009, 0x8100)
    assert payload == frame[:12] + frame[16:]
    assert length == len(payload)
    assert one.settled()[0]["offered_bytes"] == len(frame)


@pytest.mark.paced
def test_offloads_at_an_endpoint_are_noticed(line: Make) -> None:
    one = line()
    offloads = ("tx", "sg", "gso", "tx-udp-segmentation")
    for way in (0, 1):
        assert one.settled()[way]["checksum_missing"] == one.settled()[way]["oversized"] == 0
    one.lab.client_host.run(
        ["ethtool", "-K", "eth0", *(word for name in offloads for word in (name, "on"))]
    )
    one.send(bytes(100))
    assert _until(one.settled, lambda both: both[0]["offered"] == 1)[0]["checksum_missing"] == 1
    one.client.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, 1000)
    one.send(bytes(20_000))
    refused = _until(one.settled, lambda both: both[0]["oversized"] == 1)[0]
    assert refused["offered"] == 1


@pytest.mark.paced
def test_the_emulator_ends_with_its_parent(line: Make, ledger: Ledger, engine: str) -> None:
    one = line()
    host = NetnsHost(ledger, "alone")
    host.run(["ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
    for name in ("a", "b"):
        host.run(["ip", "link", "set", "dev", name, "up"])
    parent = subprocess.Popen(["sleep", "600"])
    spec = Spec(WAY, WAY).to_json(a="a", b="b", parent_pid=parent.pid, realtime_priority=None)
    emulator = host.spawn(
        [engine, "link", "-"], name="link", stdin=json.dumps(spec).encode(), lines=True
    )
    try:
        assert _event(emulator, "ready")
        parent.kill()
        parent.wait()
        assert emulator.wait(5.0) == 0
        assert _event(emulator, "summary")["a_to_b"]["queue_dropped"] == 0
    finally:
        parent.kill()
        parent.wait()
        host.stop_all()
        host.remove()
    assert one.lab.problem() is None, "the emulator beside it has another parent"


@pytest.mark.paced
def test_frames_that_came_while_it_did_not_run_find_the_queue_as_it_was_then(line: Make) -> None:
    queue = {"type": "packets", "limit": 10}
    one = line({**WAY, "rate_bit_s": 1_000_000, "queue": queue})
    (emulator,) = one.lab.emulators
    os.kill(emulator.pid, signal.SIGSTOP)
    try:
        # Several times what is taken from the ring at once.
        begun = one.send(bytes(100))
        for _ in range(998):
            one.send(bytes(100))
        ended = one.send(bytes(100))
        # By now, all of them would have left a queue that is empty.
        time.sleep(0.2)
    finally:
        os.kill(emulator.pid, signal.SIGCONT)
    seen = _until(one.settled, lambda both: both[0]["offered"] == 1000)[0]
    # A packet of 128 bytes takes 1.024 ms; what was sent late found room again.
    left = (ended - begun) // 1_024_000
    assert 11 <= 1000 - seen["queue_dropped"] <= 11 + left + 2


@pytest.mark.paced
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_tells_what_was_under_way(line: Make, number: signal.Signals) -> None:
    one = line({**WAY, "delay_ns": 3_000_000_000})
    for _ in range(7):
        one.send(bytes(100))
    _until(one.counters, lambda both: both[0]["offered"] == 7)
    (emulator,) = one.lab.emulators
    os.kill(emulator.pid, number)
    assert emulator.wait(5.0) == 0
    # the lab's own reader keeps the last event
    emulators: Any = one.lab._emulators
    (link,) = emulators._links
    last = _until(lambda: link._events.last, lambda event: (event or {}).get("event") == "summary")
    assert last is not None
    assert last["a_to_b"]["in_flight"] == last["a_to_b"]["offered"] == 7


@pytest.mark.paced
def test_an_interface_that_is_not_there_is_named(ledger: Ledger, engine: str) -> None:
    spec = Spec(WAY, WAY).to_json(
        a="tm-none-a", b="tm-none-b", parent_pid=os.getpid(), realtime_priority=None
    )
    done = LocalHost(ledger).run(
        [engine, "link", "-"], stdin=json.dumps(spec).encode(), check=False
    )
    assert done.returncode == 1
    event = json.loads(done.text())
    assert event["event"] == "error"
    assert event["message"].startswith('interface is "tm-none-a": No such device')


def _ping(line: Line, address: str, *, count: int, payload_bytes: int = 56) -> list[float]:
    """Round-trip times in ms."""
    done = line.lab.client_host.run(
        [
            *("ping", "-n", "-c", str(count), "-i", "0.05", "-W", "2"),
            *("-s", str(payload_bytes), address),
        ],
        check=False,
    )
    words = [word for text in done.text().splitlines() for word in text.split()]
    return [float(word.removeprefix("time=")) for word in words if word.startswith("time=")]


def _event(process: Any, wanted: str) -> dict[str, Any]:
    while True:
        text = process.read_line(10.0)
        assert text is not None, f"ended before {wanted}"
        event: dict[str, Any] = json.loads(text)
        if event["event"] == wanted:
            return event


def _until(ask: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """Ask until the answer is wanted; a busy machine gets ten seconds."""
    end = time.monotonic() + 10
    while True:
        answer = ask()
        if wanted(answer):
            return answer
        assert time.monotonic() < end, f"still {answer}"
        time.sleep(0.05)


def _socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    made.bind((address, PORT))
    return made


@contextmanager
def _inside(host: Any) -> Iterator[None]:
    """What is opened here belongs to the host's network namespace, and stays in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        Path("/proc/thread-self/ns/net").open("rb") as own,
        Path(f"/run/netns/{host.namespace}").open("rb") as other,
    ):
        if libc.setns(other.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {host.namespace}")
        try:
            yield
        finally:
            if libc.setns(own.fileno(), _CLONE_NEWNET) != 0:
                os._exit(99)  # the thread would go on in a wrong namespace
