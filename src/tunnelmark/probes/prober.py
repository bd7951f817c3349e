"""Sends the probes of a proof by ``tunnelmark-engine``, and has them answered by its reflector."""

import json
import random
import secrets
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tunnelmark.engine import config
from tunnelmark.engine.config import Flow, Session, address
from tunnelmark.engine.events import Event, parse_event, wait_for
from tunnelmark.engine.records import MISSING_NS, read_send
from tunnelmark.engine.summary import parse_reflect_summary, parse_send_summary
from tunnelmark.model.block import PROBE_CLASS
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.probes.attribution import Probe
from tunnelmark.probes.wire import Sent

PROBE_PORT: Final = 7790
"""UDP port of the reflector, apart from that of any workload."""
PROBE_SPACING_NS: Final = 6_000_000
"""Usual time between two probes."""


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
        spacing_ns: int = PROBE_SPACING_NS,
        drain_ns: int = 1_000_000_000,
        stream: bool = False,
    ) -> None:
        """Prepare to send over ``path``.

        ``engine`` is the path of the program on both hosts. ``spacing_ns`` lies between two probes
        on average at first: larger than the time by which packets are held up differently, and
        enlarged when they are held up more (``wider``). ``drain_ns`` is waited
        for replies at most; on a link with a longer round trip the replies are then not judged.
        ``stream``: see ``Spacing``.
        """
        self._path = path
        self._client = client
        self._server = server
        self._engine = engine
        self._random = random.Random(f"{seed}/wire/probes/{path.name}")  # noqa: S311 - no secret
        self._spacing = Spacing(spacing_ns, stream=stream)
        self._drain_ns = drain_ns

    @property
    def port(self) -> int:
        """UDP port to which the probes go."""
        return PROBE_PORT

    def send(self, sizes: Sequence[int], *, marker: bytes, repeats: int) -> Sent:
        """Send each size ``repeats`` times, filled with the marker, and count what came back.

        Raises ``LabError`` with the engine's last words if it cannot.
        """
        # The engine refuses to write over a record file, so no two batches share a name.
        name = f"probe-{self._path.name}-{secrets.token_hex(3)}"
        sessions = config.sessions(self._random, len(sizes))
        records = self._client.work_dir / f"{name}.rec"
        request = config.send_config(
            self._flows(sizes, sessions, marker, repeats),
            seed=0,
            drain_ns=self._drain_ns,
            late_ns=self._drain_ns,
            records=str(records),
            realtime_priority=_REALTIME_PRIORITY,
            parent_pid=None,
        )
        reflector = self._start_reflector(name, sessions)
        try:
            done = self._client.run(
                [self._engine, "send", "-"],
                stdin=json.dumps(request).encode(),
                timeout_s=self._limit_s(len(sizes) * repeats),
                check=False,
            )
        finally:
            reflector.stop()
        summary = parse_send_summary(self._summary(name, done.text(), done.last_words()))
        answered = parse_reflect_summary(wait_for(reflector, "summary", limit_s=_REFLECTOR_LIMIT_S))
        table = read_send(self._client.get(records), f"records of {name}")
        answers = table[(table["sent_ns"] != MISSING_NS) & (table["returned_ns"] != MISSING_NS)]
        self._spacing.heard(answers["returned_ns"] - answers["sent_ns"])
        probes = [
            Probe(int(row["sent_ns"]), int(row["size"]))
            for row in table[table["sent_ns"] != MISSING_NS]
        ]
        return Sent(
            probes=tuple(sorted(probes)),
            arrived=sum(flow.received for flow in answered.flows),
            returned=sum(flow.returned for flow in summary.flows),
        )

    def widen(self) -> None:
        """Keep probes further apart from now on: it was unknown whose packets were on the link."""
        self._spacing.unknown()

    def _start_reflector(self, name: str, sessions: Sequence[Session]) -> Process:
        request = config.reflect_config(
            [address(self._path.server_listens, PROBE_PORT)],
            sessions,
            records=None,
            realtime_priority=None,
            parent_pid=None,
        )
        reflector = self._server.spawn(
            [self._engine, "reflect", "-"],
            name=f"{name}-reflector",
            stdin=json.dumps(request).encode(),
            lines=True,
        )
        try:
            wait_for(reflector, "ready", limit_s=_REFLECTOR_LIMIT_S)
        except BaseException:
            reflector.stop()
            raise
        return reflector

    def _flows(
        self, sizes: Sequence[int], sessions: Sequence[Session], marker: bytes, repeats: int
    ) -> list[Flow]:
        # So uneven that a shift by one probe matches nothing, yet never too close to distinguish.
        least, most = least_gap_ns(self._spacing.ns), self._spacing.ns * 14 // 10
        gaps = [self._random.randrange(least, most) for _ in sizes]
        return [
            Flow(
                session=session,
                target=address(self._path.server_address, PROBE_PORT),
                # Bound to no interface: where the route leads is part of the proof.
                source=address(self._path.client_address, 0),
                gap_ns=sum(gaps),
                start_offset_ns=sum(gaps[:number]),
                packets=repeats,
                duration_ns=None,
                payload_bytes=size,
                content={"type": "repeat", "pattern": marker.hex()},
                traffic_class=PROBE_CLASS,
            )
            for number, (size, session) in enumerate(zip(sizes, sessions, strict=True))
        ]

    def _limit_s(self, probes: int) -> float:
        return (2 * self._spacing.ns * probes + self._drain_ns) / 1e9 + _SENDER_SLACK_S

    def _summary(self, name: str, text: str, last_words: str) -> Event:
        events = {event["event"]: event for event in map(parse_event, text.splitlines())}
        if "summary" not in events or "error" in events:
            why = events.get("error", {}).get("message") or last_words
            raise LabFailedError(f"sender of {name} on {self._client.name}: {why}")
        return events["summary"]


class Spacing:
    """How far apart the probes of the next batch are, in ns on average.

    Over a stream packets wait for those before them, so that replies come unevenly although it is
    known whose packets are on the link: only a batch of which it was not makes it larger.
    """

    def __init__(self, ns: int, *, stream: bool) -> None:
        """Start with so much."""
        self.ns = self._unknown_ns = ns
        self._stream = stream

    def heard(self, rtt_ns: npt.NDArray[np.int64]) -> None:
        """Take in the round trips of a batch."""
        wider_ns = wider(self.ns, rtt_ns)
        self._unknown_ns = max(wider_ns, _most(2 * self.ns, self.ns))
        if not self._stream:
            self.ns = wider_ns

    def unknown(self) -> None:
        """Be as large as the last batch asks for, and at least twice what it had."""
        self.ns = self._unknown_ns


def least_gap_ns(spacing_ns: int) -> int:
    """Return the shortest time between two probes that are so far apart on average."""
    return spacing_ns * 6 // 10


def wider(spacing_ns: int, rtt_ns: npt.NDArray[np.int64]) -> int:
    """Return the spacing of the next batch, in ns: more where packets are held up unevenly.

    A busy or emulated computer keeps one packet longer than the next; once that differs by half the
    spacing, it is unknown whose packet is on the link. Four times as far at once: what came too
    fast for a stream that had just begun is uneven by far more than it will be, and each batch
    takes as much longer.
    """
    if len(rtt_ns) < _LEAST_ANSWERS:
        return _most(spacing_ns * 2, spacing_ns)
    fastest, slow = np.percentile(rtt_ns, (5, 90))
    uneven_ns = int(slow - fastest)
    if uneven_ns * 2 < spacing_ns:
        return spacing_ns
    return _most(min(max(spacing_ns, uneven_ns) * 2, spacing_ns * 4), spacing_ns)


def _most(spacing_ns: int, before_ns: int) -> int:
    return min(spacing_ns, max(before_ns, _WIDEST_NS))


_WIDEST_NS: Final = 120_000_000
_LEAST_ANSWERS: Final = 10
_REALTIME_PRIORITY: Final = 10
_REFLECTOR_LIMIT_S: Final = 10.0
_SENDER_SLACK_S: Final = 15.0
