"""What the engine does, measured with its own events and record files."""

import json
import resource
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pair import CLIENT, PORT, SERVER, Pair

_KEY = "000102030405060708090a0b0c0d0e0f"
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
    extra: Mapping[str, object] | None = None,
) -> EchoRun:
    """Send at a fixed gap and return what arrived; ``one_way`` asks for no answers."""
    session = {"flow": 0, "session": 7, "key": _KEY}
    reflector = pair.start_engine(
        pair.server,
        "reflect",
        {
            "protocol": 1,
            "parent_pid": None,
            "listen": [f"{SERVER}:{PORT}"],
            "sessions": [session],
            "records": None,
            "realtime_priority": 10 if realtime else None,
            "cpu": None,
            "socket_buffer_bytes": 16 << 20,
            **({"answer": False} if one_way else {}),
        },
    )
    path = pair.directory / "send.rec"
    path.unlink(missing_ok=True)
    config = {
        "protocol": 1,
        "parent_pid": None,
        "flows": [
            {
                **session,
                "target": f"{SERVER}:{PORT}",
                "source": f"{CLIENT}:0",
                "interface": None,
                "start_offset_ns": 0,
                "schedule": {"type": "fixed", "gap_ns": gap_ns},
                "stop": {"type": "duration", "duration_ns": int(duration_s * _SECOND)},
                "size": {"type": "fixed", "payload_bytes": payload_bytes},
                "content": {"type": "zero"},
            }
        ],
        "seed": 1,
        "drain_ns": _SECOND // 4,
        "late_ns": _SECOND,
        "missed": "send",
        "dont_fragment": False,
        "records": str(path) if records else None,
        "realtime_priority": 10 if realtime else None,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": 16 << 20,
        **(extra or {}),
    }
    sender = pair.start_engine(pair.client, "send", config)
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


def relay_run(
    pair: Pair, spec: Mapping[str, object], load: object
) -> tuple[dict[str, object], float]:
    """Start the emulator with a direction used both ways; ``load`` is called in between.

    Returns the emulator's summary and its CPU seconds.
    """
    config = {
        "protocol": 1,
        "parent_pid": None,
        "a": {"interface": "a"},
        "b": {"interface": "b"},
        "a_to_b": spec,
        "b_to_a": spec,
        "seed": 1,
        "realtime_priority": 20,
        "cpu": None,
    }
    emulator = pair.start_engine(pair.link, "link", config)
    assert callable(load)  # noqa: S101
    time.sleep(0.2)
    load()
    used = Path(f"/proc/{emulator.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    ticks = int(used[11]) + int(used[12])
    return pair.summary(emulator, stop=True), ticks / 100


def version(engine: str) -> str:
    """Return the engine's own version."""
    import subprocess  # noqa: PLC0415

    return str(json.loads(subprocess.check_output([engine, "version"], text=True))["version"])


def _first(summary: dict[str, object]) -> dict[str, object]:
    flows = summary["flows"]
    assert isinstance(flows, list)  # noqa: S101
    first = flows[0]
    assert isinstance(first, dict)  # noqa: S101
    return first


def _lateness_us(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    data = path.read_bytes()
    magic, _version, _kind, size = struct.unpack_from("<8sHHI", data)
    if magic != b"TMREC\0\0\0":
        raise ValueError(f"{path}: not a record file")
    names = ["seq", "scheduled", "sent"]
    layout = np.dtype(
        {"names": names, "formats": ["<u8", "<i8", "<i8"], "offsets": [0, 8, 16], "itemsize": size}
    )
    records = np.frombuffer(data, layout, offset=64)
    sent = records[records["sent"] != np.iinfo(np.int64).min]
    return (sent["sent"] - sent["scheduled"]) / 1000.0  # type: ignore[no-any-return]
