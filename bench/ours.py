"""What the engine does, measured with its own events and record files."""

import json
import os
import resource
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from pair import CLIENT, PORT, SERVER, Pair

_KEY = "000102030405060708090a0b0c0d0e0f"
_HEAD_BYTES = 64
_SECOND = 10**9


@dataclass(frozen=True)
class EchoRun:
    """One run of sender and reflector."""

    asked_packet_s: float
    sent: int
    received: int
    returned: int
    seconds: float
    cpu_s: float
    rtt_p50_us: float | None
    lateness_us: np.ndarray[tuple[int], np.dtype[np.float64]] | None

    @property
    def sent_packet_s(self) -> float:
        """Packets that left per second."""
        return self.sent / self.seconds

    @property
    def received_packet_s(self) -> float:
        """Packets that reached the far end per second."""
        return self.received / self.seconds


def echo(
    pair: Pair,
    *,
    gap_ns: int,
    duration_s: float,
    payload_bytes: int = 64,
    realtime: bool = True,
    records: bool = False,
    one_way: bool = False,
    coalesce_ns: int = 0,
    segment: bool = False,
    spin: bool = True,
) -> EchoRun:
    """Send at a fixed gap and return what arrived; ``one_way`` asks for no answers.

    ``coalesce_ns`` sends, and takes, what has come together in so long a time at once; with
    ``segment`` the kernel cuts what leaves together.
    """
    path = pair.directory / "send.rec"
    path.unlink(missing_ok=True)
    reflector = _reflector(pair, realtime=realtime, answer=not one_way, coalesce_ns=coalesce_ns)
    sender = _sender(
        pair,
        gap_ns=gap_ns,
        stop={"type": "duration", "duration_ns": int(duration_s * _SECOND)},
        payload_bytes=payload_bytes,
        realtime=realtime,
        records=path if records else None,
        coalesce_ns=coalesce_ns,
        segment=segment,
        spin=spin,
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    sent = pair.summary(sender, stop=False)
    received = pair.summary(reflector, stop=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own, far = _first(sent), _first(received)
    seconds = (int(own["last_sent_ns"]) - int(own["first_sent_ns"])) / _SECOND  # type: ignore[call-overload]
    rtt = own["rtt_ns"]
    return EchoRun(
        asked_packet_s=_SECOND / gap_ns,
        sent=int(own["sent"]),  # type: ignore[call-overload]
        received=int(far["received"]),  # type: ignore[call-overload]
        returned=int(own["returned"]),  # type: ignore[call-overload]
        seconds=seconds,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        rtt_p50_us=rtt["p50"] / 1000 if isinstance(rtt, dict) else None,
        lateness_us=_lateness_us(path) if records else None,
    )


@dataclass(frozen=True)
class LongRun:
    """A run whose records went to disk."""

    rate_packet_s: float
    received: int
    returned: int
    send_records: int
    reflect_records: int
    sender_mib: float
    reflector_mib: float


def long_run(pair: Pair, *, packets: int, packet_s: int) -> LongRun:
    """Echo ``packets`` with records at both ends, and watch the memory of both."""
    sent, received = pair.directory / "long-send.rec", pair.directory / "long-reflect.rec"
    reflector = _reflector(pair, realtime=False, answer=True, records=received)
    sender = _sender(
        pair,
        gap_ns=_SECOND // packet_s,
        stop={"type": "packets", "packets": packets},
        payload_bytes=64,
        realtime=False,
        records=sent,
    )
    with PeakMemory(sender.pid) as of_sender, PeakMemory(reflector.pid) as of_reflector:
        own = _first(pair.summary(sender, stop=False))
        far = _first(pair.summary(reflector, stop=True))
    seconds = (int(own["last_sent_ns"]) - int(own["first_sent_ns"])) / _SECOND  # type: ignore[call-overload]
    run = LongRun(
        rate_packet_s=packets / seconds,
        received=int(far["received"]),  # type: ignore[call-overload]
        returned=int(own["returned"]),  # type: ignore[call-overload]
        send_records=_records(sent),
        reflect_records=_records(received),
        sender_mib=of_sender.kib / 1024,
        reflector_mib=of_reflector.kib / 1024,
    )
    sent.unlink()
    received.unlink()
    return run


@dataclass(frozen=True)
class ManyRun:
    """A run of one or many flows."""

    sent: int
    received: int
    returned: int
    seconds: float
    cpu_s: float
    sender_mib: float
    reflector_mib: float

    @property
    def cpu_us(self) -> float:
        """CPU per packet, both ends."""
        return self.cpu_s / max(self.sent, 1) * 1e6


def many_run(
    pair: Pair,
    *,
    flows: int,
    packet_s: float,
    duration_s: float,
    spin: bool = True,
    shards: int = 1,
) -> ManyRun:
    """Echo ``packet_s`` packets a second, shared evenly by ``flows``, and watch both ends."""
    reflector = _reflector(pair, realtime=False, answer=True, flows=flows, shards=shards)
    sender = _sender(
        pair,
        gap_ns=int(_SECOND * flows / packet_s),
        stop={"type": "duration", "duration_ns": int(duration_s * _SECOND)},
        payload_bytes=200,
        realtime=False,
        records=None,
        flows=flows,
        content="random",
        spin=spin,
        shards=shards,
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with PeakMemory(sender.pid) as of_sender, PeakMemory(reflector.pid) as of_reflector:
        own = pair.summary(sender, stop=False)
        far = pair.summary(reflector, stop=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    def total(summary: dict[str, object], key: str) -> int:
        return sum(int(flow[key]) for flow in summary["flows"])  # type: ignore[attr-defined, misc]

    return ManyRun(
        sent=total(own, "sent"),
        received=total(far, "received"),
        returned=total(own, "returned"),
        seconds=duration_s,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        sender_mib=of_sender.kib / 1024,
        reflector_mib=of_reflector.kib / 1024,
    )


class PeakMemory:
    """The most memory that a process has held (VmHWM), read while it runs."""

    def __init__(self, pid: int) -> None:
        self.kib = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            try:
                text = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            for line in text.splitlines():
                if line.startswith("VmHWM:"):
                    self.kib = max(self.kib, int(line.split()[1]))


def relay_run(
    pair: Pair, spec: Mapping[str, object], load: object, *, spin: bool = True
) -> tuple[dict[str, object], float]:
    """Start the emulator with a direction used both ways; ``load`` is called in between.

    Returns the emulator's summary and its CPU seconds.
    """
    config = {
        "protocol": 2,
        "parent_pid": None,
        "a": {"interface": "a"},
        "b": {"interface": "b"},
        "a_to_b": spec,
        "b_to_a": spec,
        "seed": 1,
        "realtime_priority": 20,
        "cpu": None,
        # Engines before this option are measured, too.
        **({} if spin else {"spin": False}),
    }
    emulator = pair.start_engine(pair.link, "link", config)
    assert callable(load)  # noqa: S101
    time.sleep(0.2)
    load()
    used = Path(f"/proc/{emulator.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    ticks = int(used[11]) + int(used[12])
    return pair.summary(emulator, stop=True), ticks / os.sysconf("SC_CLK_TCK")


def version(engine: str) -> str:
    """Return the engine's own version."""
    return str(json.loads(subprocess.check_output([engine, "version"], text=True))["version"])


def _reflector(
    pair: Pair,
    *,
    realtime: bool,
    answer: bool,
    records: Path | None = None,
    coalesce_ns: int = 0,
    flows: int = 1,
    shards: int = 1,
) -> subprocess.Popen[str]:
    return pair.start_engine(
        pair.server,
        "reflect",
        {
            "protocol": 2,
            "parent_pid": None,
            "listen": [f"{SERVER}:{PORT}"],
            "sessions": [_session(number) for number in range(flows)],
            "records": str(records) if records else None,
            "realtime_priority": 10 if realtime else None,
            "cpu": None,
            "socket_buffer_bytes": 16 << 20,
            "answer": answer,
            "coalesce_ns": coalesce_ns,
            "shards": shards,
        },
    )


def _sender(
    pair: Pair,
    *,
    gap_ns: int,
    stop: Mapping[str, object],
    payload_bytes: int,
    realtime: bool,
    records: Path | None,
    coalesce_ns: int = 0,
    segment: bool = False,
    flows: int = 1,
    content: str = "zero",
    spin: bool = True,
    shards: int = 1,
) -> subprocess.Popen[str]:
    flow = {
        "target": f"{SERVER}:{PORT}",
        "source": f"{CLIENT}:0",
        "interface": None,
        "schedule": {"type": "fixed", "gap_ns": gap_ns},
        "stop": stop,
        "size": {"type": "fixed", "payload_bytes": payload_bytes},
        "content": {"type": content},
    }
    # One after the other within a gap.
    offsets = [number * gap_ns // flows for number in range(flows)]
    config = {
        "protocol": 2,
        "parent_pid": None,
        "flows": [
            {**_session(number), **flow, "start_offset_ns": offset}
            for number, offset in enumerate(offsets)
        ],
        "seed": 1,
        "drain_ns": _SECOND // 4,
        "late_ns": _SECOND,
        "missed": "send",
        "coalesce_ns": coalesce_ns,
        "segment": segment,
        "spin": spin,
        "dont_fragment": False,
        "records": str(records) if records else None,
        "realtime_priority": 10 if realtime else None,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": 16 << 20,
        "shards": shards,
    }
    return pair.start_engine(pair.client, "send", config)


def _session(number: int) -> dict[str, object]:
    return {"flow": number, "session": 7 + number, "key": _KEY}


def _records(path: Path) -> int:
    with path.open("rb") as file:
        size = _record_bytes(path, file.read(_HEAD_BYTES))
    return (path.stat().st_size - _HEAD_BYTES) // size


def _record_bytes(path: Path, head: bytes) -> int:
    magic, _version, _kind, size = struct.unpack_from("<8sHHI", head)
    if magic != b"TMREC\0\0\0":
        raise ValueError(f"{path}: not a record file")
    return int(size)


def _first(summary: dict[str, object]) -> dict[str, object]:
    flows = summary["flows"]
    assert isinstance(flows, list)  # noqa: S101
    first = flows[0]
    assert isinstance(first, dict)  # noqa: S101
    return first


def _lateness_us(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    data = path.read_bytes()
    size = _record_bytes(path, data)
    names = ["seq", "scheduled", "sent"]
    layout = np.dtype(
        {"names": names, "formats": ["<u8", "<i8", "<i8"], "offsets": [0, 8, 16], "itemsize": size}
    )
    records = np.frombuffer(data, layout, offset=_HEAD_BYTES)
    sent = records[records["sent"] != np.iinfo(np.int64).min]
    return (sent["sent"] - sent["scheduled"]) / 1000.0  # type: ignore[no-any-return]
