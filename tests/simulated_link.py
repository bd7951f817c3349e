"""A link that is simulated packet by packet, and the whole proof against it: no root, no clock."""

import base64
import itertools
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

from tunnelmark.model.block import WireProof
from tunnelmark.model.host import Completed, Host
from tunnelmark.model.tunnel import Endpoint, TrafficPath, WireRule
from tunnelmark.probes.attribution import Probe
from tunnelmark.probes.judge import make_marker
from tunnelmark.probes.wire import Sent, Watch, prove

CLIENT, SERVER = bytes((198, 18, 0, 1)), bytes((198, 18, 0, 2))
RULE = WireRule(
    encrypted=True, describe="UDP to or from port 1194", ip_protocols=(17,), udp_ports=(1194,)
)
BARE = WireRule(encrypted=False, describe="UDP, readable", ip_protocols=(17,))
PATH = TrafficPath("0", "198.19.0.1", "198.19.0.2", "tun0", "tun0", 1500)
NOISE = make_marker(99)
MS = 10**6
# The capture's clock is half a century away from the sender's.
CLOCK_NS = 1_700_000_000 * 10**9

Outgoing = list[tuple[int, bytes]]
_OFTEN = 0.7


def fragments(data: bytes, identification: int, forward: bool, mtu: int = 1500) -> list[bytes]:
    """Return the Ethernet frames of one IPv4 packet carrying ``data`` as UDP and more."""
    room = (mtu - 20) // 8 * 8
    pieces = [data[at : at + room] for at in range(0, len(data), room)]
    ends = (CLIENT, SERVER) if forward else (SERVER, CLIENT)
    frames = []
    for number, piece in enumerate(pieces):
        more = 0x2000 if number < len(pieces) - 1 else 0
        field_ = more | (number * room // 8)
        header = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, 20 + len(piece), identification, field_, 64, 17, 0, *ends
        )
        frames.append(bytes(12) + b"\x08\x00" + header + piece)
    return frames


def udp(port: int, data: bytes) -> bytes:
    return struct.pack(">HHHH", 40000, port, 8 + len(data), 0) + data


def encrypting(overhead: int, port: int = 1194) -> Callable[[bytes], bytes]:
    """A tunnel that shows noise of the length of the inner packet and its overhead."""
    noise = random.Random(99)  # noqa: S311

    def wrap(payload: bytes) -> bytes:
        return udp(port, noise.randbytes(28 + len(payload) + overhead))

    return wrap


def joining(
    overhead: int, *, late: float = 0.0, seed: int = 99, inner_mtu: int = 65535, block: int = 1
) -> Callable[[bytes], bytes]:
    """A stream as RFC 896 has it: what does not fill a segment goes with what comes next.

    On a busy computer that share of datagrams is ``late``, and goes with the next one as a whole.
    Of one that is larger than ``inner_mtu`` the second fragment often goes with the next one. Each
    is padded to a multiple of ``block``.
    """
    noise, room = random.Random(seed), 1472  # noqa: S311
    rests, turn = [b"", b""], itertools.cycle((0, 1))

    def wrap(payload: bytes) -> bytes:
        way = next(turn)
        inner = 28 + len(payload)
        first = inner if inner <= inner_mtu else 20 + (inner_mtu - 20) // 8 * 8
        held = rests[way] + noise.randbytes(first + overhead + -first % block)
        sent = len(held) // room * room or len(held)
        if first < inner:
            held += noise.randbytes(20 + inner - first + overhead)
            sent = sent if noise.random() < _OFTEN else len(held) // room * room
        if noise.random() < late:
            sent = 0
        rests[way] = held[sent:]
        return udp(1194, held[:sent]) if sent else b""

    return wrap


def scrambling(key: bytes) -> Callable[[bytes], bytes]:
    """A tunnel that only adds a constant to each byte."""

    def wrap(payload: bytes) -> bytes:
        inner = bytes(28) + payload
        return udp(1194, bytes(byte ^ key[at % len(key)] for at, byte in enumerate(inner)))

    return wrap


def spelling(payload: bytes) -> bytes:
    """A tunnel that only writes each byte in another alphabet."""
    return udp(1194, base64.b64encode(bytes(28) + payload))


def clear(payload: bytes) -> bytes:
    return udp(7790, payload)


@dataclass
class Link:
    """A link between a sender and a capture; ``wrap`` is the tunnel."""

    wrap: Callable[[bytes], bytes]
    frames: Outgoing = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(3))  # noqa: S311
    now_ns: int = 5_000
    lose: float = 0.0
    arrive: bool = True
    noise: Callable[[int], Outgoing] = lambda _now: []
    port: int = 7790
    rest_ns: int = 4_000
    """How much later the next packet of the same datagram follows."""
    held_ns: int = 400_000
    """Up to so long a packet is held up, each another time."""
    spacing: int = 1

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        probes = []
        for number in range(repeats * len(sizes)):
            size = sizes[number % len(sizes)]
            self.now_ns += self.spacing * self.rng.randrange(int(2.5 * MS), int(7.5 * MS))
            probes.append(Probe(self.now_ns, size))
            payload = bytes(24) + (marker * 17)[: size - 24]
            if self.rng.random() < self.lose:
                continue
            at = CLOCK_NS + self.now_ns + self.rng.randrange(50_000, self.held_ns)
            for forward in (True, False):
                data = self.wrap(payload)
                for frame in fragments(data, number * 2 + forward, forward):
                    self.frames.append((at, frame))
                    at += self.rest_ns
                at += 300_000
        self.frames += self.noise(CLOCK_NS + self.now_ns)
        self.frames.sort(key=lambda item: item[0])
        arrived = len(probes) if self.arrive else 0
        return Sent(tuple(probes), arrived, arrived)

    def widen(self) -> None:
        self.spacing *= 2


@dataclass
class Tcpdump:
    """A process that captures from the link; what it does wrong is up to the test."""

    host: "LinkHost"
    path: PurePosixPath
    log: str = "tcpdump: listening on a, link-type EN10MB (Ethernet), snapshot length 9216 bytes\n"
    status: int | None = None
    pid: int = 1
    name: str = "tcpdump"
    argv: tuple[str, ...] = ()

    def poll(self) -> int | None:
        return self.status

    def stop(self, grace_s: float = 2.0) -> int:
        del grace_s
        if self.status is None:
            frames, self.host.link.frames = self.host.link.frames, []
            self.host.files[self.path] = pcap(frames)
            self.status = 0
            self.log += (
                f"{len(frames) + self.host.miscounted} packets captured\n"
                f"{len(frames)} packets received by filter\n"
                f"{self.host.dropped} packets dropped by kernel\n"
            )
        return self.status

    def kill(self) -> None:
        self.status = -9

    def log_tail(self, lines: int = 5) -> str:
        return "\n".join(self.log.splitlines()[-lines:])


@dataclass
class LinkHost:
    link: Link
    name: str = "link"
    dropped: int = 0
    miscounted: int = 0
    programs: tuple[str, ...] = ("tcpdump",)
    files: dict[PurePosixPath, bytes] = field(default_factory=dict)
    spawned: list[Tcpdump] = field(default_factory=list)
    refuses: str = ""
    setgroups: bytes = b"allow\n"

    @property
    def work_dir(self) -> PurePosixPath:
        return PurePosixPath("/fake/link")

    def has(self, program: str) -> str | None:
        return program if program in self.programs else None

    def run(self, argv: Sequence[str], *, check: bool = True) -> Completed:
        assert not check
        return Completed(tuple(argv), 0, self.setgroups, b"")

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        del mode
        self.files[path] = data

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        assert len(self.files[path]) <= limit_bytes
        return self.files[path]

    def spawn(self, argv: Sequence[str], *, name: str, env: Mapping[str, str]) -> Tcpdump:
        del name, env
        file = argv[argv.index("-w") + 1] if "-w" in argv else argv[4]
        process = Tcpdump(self, PurePosixPath(file), argv=tuple(argv))
        if self.refuses:
            process.log, process.status = self.refuses, 1
        self.spawned.append(process)
        return process


def pcap(frames: Outgoing) -> bytes:
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 9216, 1)
    for at, frame in frames:
        data += struct.pack("<IIII", at // 10**9, at % 10**9, len(frame), len(frame)) + frame
    return data


def proof(
    link: Link, rule: WireRule = RULE, *, host: LinkHost | None = None, **more: Any
) -> WireProof:
    watched = cast("Host", host or LinkHost(link))
    client = Endpoint(watched, "198.18.0.1", "fd00:0:0::0001", "eth0", 1500)
    sizes = more.pop("payload_sizes", (100, 1000, 1472))
    return prove(
        PATH,
        rule,
        prober=link,
        watch=Watch(watched, "a", client),
        payload_sizes=sizes,
        seed=11,
        **more,
    )
