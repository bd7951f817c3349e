"""Sends the probes of a proof by ``tunnelmark-engine``, and has them answered by its reflector."""

import ipaddress
import json
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.probes.attribution import Probe
from tunnelmark.probes.wire import Sent

PROBE_PORT: Final = 7790
"""UDP port of the reflector, apart from that of any workload."""


class EngineProber:
    """One flow for each payload size, which sends once a cycle, at an irregular place in it."""

    def __init__(
        self,
        path: TrafficPath,
        *,
        client: Host,
        server: Host,
        engine: str,
        seed: int,
        spacing_ns: int = 5_000_000,
        drain_ns: int = 1_000_000_000,
    ) -> None:
        """Prepare to send over ``path``.

        ``engine`` is the path of the program on both hosts. ``spacing_ns`` lies between two probes
        on average: larger than the time a packet takes through the tunnel. ``drain_ns`` is waited
        for answers at most; on a link with a longer round trip the answers are then not judged.
        """
        self._path = path
        self._client = client
        self._server = server
        self._engine = engine
        self._random = random.Random(f"{seed}/wire/probes/{path.name}")  # noqa: S311 - no secret
        self._spacing_ns = spacing_ns
        self._drain_ns = drain_ns
        self._batch = 0

    @property
    def port(self) -> int:
        """UDP port to which the probes go."""
        return PROBE_PORT

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        """Send each size ``repeats`` times, filled with the marker, and count what came back.

        Raises ``LabError`` with the engine's last words if it cannot.
        """
        name = f"probe-{self._path.name}-{self._batch}"
        self._batch += 1
        sessions = [
            {
                "flow": flow,
                "session": self._random.getrandbits(32),
                "key": self._random.randbytes(16).hex(),
            }
            for flow in range(len(sizes))
        ]
        reflector = self._start_reflector(name, sessions)
        try:
            records = self._client.work_dir / f"{name}.rec"
            config = self._config(sizes, sessions, str(records), marker, repeats)
            limit_s = (self._spacing_ns * 2 * len(sizes) * repeats + self._drain_ns) / 1e9 + 15
            done = self._client.run(
                [self._engine, "send", "-"],
                stdin=json.dumps(config).encode(),
                timeout_s=limit_s,
                check=False,
            )
            if done.returncode != 0:
                raise LabError(
                    f"sender of {name} on {self._client.name}: {_complaint(done.text())}"
                )
            probes = tuple(sorted(_sent_probes(self._client.get(records), name)))
        finally:
            reflector.stop()
        summary = _last_event(done.text().splitlines(), "summary", f"sender of {name}")
        reflected = _last_event(_rest(reflector), "summary", f"reflector of {name}")
        return Sent(probes, _total(reflected, "received"), _total(summary, "returned"))

    def _start_reflector(self, name: str, sessions: Sequence[Mapping[str, object]]) -> Process:
        config = {
            "protocol": 1,
            "parent_pid": None,
            "listen": [_address(self._path.server_address, PROBE_PORT)],
            "sessions": list(sessions),
            "records": None,
            "realtime_priority": None,
            "cpu": None,
            "socket_buffer_bytes": _SOCKET_BUFFER_BYTES,
        }
        reflector = self._server.spawn(
            [self._engine, "reflect", "-"],
            name=f"{name}-reflector",
            stdin=json.dumps(config).encode(),
            lines=True,
        )
        try:
            line = reflector.read_line(_READY_LIMIT_S)
        except TimeoutError as error:
            reflector.kill()
            raise LabError(
                f"reflector of {name} on {self._server.name} is not ready "
                f"after {_READY_LIMIT_S:g} s"
            ) from error
        event = _event(line or "")
        if event.get("event") != "ready":
            reflector.kill()
            why = event.get("message") or reflector.log_tail() or "no output"
            raise LabError(f"reflector of {name} on {self._server.name}: {why}")
        return reflector

    def _config(
        self,
        sizes: Sequence[int],
        sessions: Sequence[Mapping[str, object]],
        records: str,
        marker: bytes,
        repeats: int,
    ) -> dict[str, object]:
        # From half to one and a half of the spacing: a shift by one probe then matches nothing.
        gaps = [
            self._random.randrange(self._spacing_ns // 2, self._spacing_ns * 3 // 2) for _ in sizes
        ]
        cycle_ns = sum(gaps)
        flows = [
            {
                **session,
                "target": _address(self._path.server_address, PROBE_PORT),
                "source": _address(self._path.client_address, 0),
                # Not bound to the inner interface: where the route leads is part of the proof.
                "interface": None,
                "start_offset_ns": sum(gaps[:number]),
                "schedule": {"type": "fixed", "gap_ns": cycle_ns},
                "stop": {"type": "packets", "packets": repeats},
                "size": {"type": "fixed", "payload_bytes": size},
                "content": {"type": "repeat", "pattern": marker.hex()},
            }
            for number, (size, session) in enumerate(zip(sizes, sessions, strict=True))
        ]
        return {
            "protocol": 1,
            "parent_pid": None,
            "flows": flows,
            "seed": 0,
            "drain_ns": self._drain_ns,
            "late_ns": self._drain_ns,
            "missed": "send",
            "dont_fragment": False,
            "records": records,
            "realtime_priority": 10,
            "send_cpu": None,
            "receive_cpu": None,
            "socket_buffer_bytes": _SOCKET_BUFFER_BYTES,
        }


_SOCKET_BUFFER_BYTES: Final = 1 << 20
_READY_LIMIT_S: Final = 10.0
_MAX_EVENTS: Final = 10_000
# docs/engine.md, "Record files": header, and of a send record the fields up to the flags.
_HEADER: Final = struct.Struct("<8sHHIQq32x")
_SEND_RECORD: Final = struct.Struct("<QqqqqIHHI12x")
_MAGIC: Final = b"TMREC\0\0\0"
_KIND_SEND: Final = 1
_MISSING: Final = -(1 << 63)


def _sent_probes(data: bytes, place: str) -> Iterator[Probe]:
    if len(data) < _HEADER.size:
        raise LabError(f"records of {place}: {len(data)} bytes, the header alone has 64")
    magic, version, kind, size, _, _ = _HEADER.unpack_from(data)
    if (magic, version, kind, size) != (_MAGIC, 1, _KIND_SEND, _SEND_RECORD.size):
        raise LabError(f"records of {place}: not version 1 of the records of a sender")
    for record in _SEND_RECORD.iter_unpack(
        data[_HEADER.size : len(data) - (len(data) - _HEADER.size) % _SEND_RECORD.size]
    ):
        sent_ns, payload_bytes = record[2], record[5]
        if sent_ns != _MISSING:
            yield Probe(sent_ns, payload_bytes)


def _address(text: str, port: int) -> str:
    address = ipaddress.ip_address(text)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004


def _rest(process: Process) -> list[str]:
    """Return what a process that has ended wrote to its end."""
    lines: list[str] = []
    while len(lines) < _MAX_EVENTS:
        line = process.read_line(_READY_LIMIT_S)
        if line is None:
            break
        lines.append(line)
    return lines


def _event(line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _last_event(lines: Sequence[str], kind: str, place: str) -> Mapping[str, Any]:
    for line in reversed(lines):
        event = _event(line)
        if event.get("event") == kind:
            return event
    raise LabError(f"{place} ended without a {kind}: {_complaint(chr(10).join(lines))}")


def _complaint(text: str) -> str:
    """Return the engine's own error, or its last line."""
    lines = text.strip().splitlines()
    for line in reversed(lines):
        event = _event(line)
        if event.get("event") == "error" and isinstance(event.get("message"), str):
            return str(event["message"])
    return lines[-1][:200] if lines else "no output"


def _total(summary: Mapping[str, Any], key: str) -> int:
    flows = summary.get("flows")
    if not isinstance(flows, list):
        return 0
    return sum(
        flow[key] for flow in flows if isinstance(flow, dict) and isinstance(flow.get(key), int)
    )
