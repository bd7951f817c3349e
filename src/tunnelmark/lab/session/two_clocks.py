"""One-way delays between two clocks: how far these are apart in a trial, and how sure that is.

Small packets go both ways over the line, beside the tunnel, before the trial and after every part
of it whose delays are asked for; those behind a trial are also those before the next. With the
packets of the part itself they bound a straight line, so a clock that was set meanwhile fits none.
The error is half of the line's quickest round trip at best: how that divides between the directions
is nothing that packets can tell.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tunnelmark.engine.records import Flow
from tunnelmark.lab.clocks import (
    Bounds,
    ClockOffset,
    all_bounds,
    bounds_of,
    offset_within,
    on_near_clock,
)
from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.model.host import Host
from tunnelmark.model.overhead import IP_HEADER_BYTES, UDP_HEADER_BYTES, IpVersion
from tunnelmark.model.tunnel import TrafficPath, WireRule
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import OnOneClock, TrialContext
from tunnelmark.workloads.streams import plan, run_streams

CLOCK_PORT: Final = 7690
"""Below those of the workloads."""
CLOCK_WIRE: Final = WireRule(
    encrypted=False,
    describe=f"UDP to or from port {CLOCK_PORT}",
    ip_protocols=(17,),
    udp_ports=(CLOCK_PORT,),
)
"""What the exchanges look like on the link."""
_PACKETS: Final = 50
_GAP_NS: Final = 10_000_000
_PAYLOAD_BYTES: Final = 64
_LONGEST_WAIT_NS: Final = 2_000_000_000
_SHORTEST_WAIT_NS: Final = 100_000_000
_WAIT_ROUND_TRIPS: Final = 4
_RECENT_NS: Final = 5_000_000_000
"""So long an exchange serves the next trial; clocks may drift apart by 5 ms in it, which a line
through later packets takes out again."""
_MISSING: Final = "no one-way delay and no call score: the ends have separate clocks"


@dataclass
class Latest:
    """The last exchange over a lab's line."""

    bounds: tuple[Bounds, ...] = ()
    ended_ns: int = 0
    """Of the controller's clock."""
    wait_ns: int = _LONGEST_WAIT_NS


@dataclass
class TwoClocks:
    """The clocks of both ends during one trial; the near one is the client's."""

    context: TrialContext
    paths: tuple[TrafficPath, ...]
    """The line, beside the tunnel."""
    name: str
    latest: Latest = field(default_factory=Latest)
    found: list[ClockOffset] = field(default_factory=list)
    """Of each part of the trial whose one-way delays are reported."""
    why: str = ""
    """Why those of a part are not."""
    _bounds: list[Bounds] = field(default_factory=list)
    _errors_ns: list[float] = field(default_factory=list)
    _carried: dict[str, int] = field(default_factory=lambda: {"forward": 0, "reverse": 0})
    _started_ns: int = 0
    _wait_ns: int = _LONGEST_WAIT_NS
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Have packets from before the trial: those that followed the last one where it just ended.

        A clock that is set between the two trials leaves the second without one-way figures.
        """
        latest = self.latest
        if latest.bounds and time.monotonic_ns() - latest.ended_ns <= _RECENT_NS:
            self._bounds += latest.bounds
            self._wait_ns = latest.wait_ns
            return
        self.exchange()

    def exchange(self) -> None:
        """Send packets over the line and back; that takes about a second."""
        asked_ns = time.monotonic_ns()
        with self._lock:
            if self._bounds and self._started_ns >= asked_ns:
                # The other direction's, which ended at the same time.
                return
            self._started_ns = time.monotonic_ns()
            new = []
            for flow in self._send():
                new.append(bounds_of(flow))
                self._carried["forward"] += int(flow.arrived.sum())
                self._carried["reverse"] += int(flow.returned.sum())
                if len(flow.rtt_ns):
                    wait_ns = _WAIT_ROUND_TRIPS * int(flow.rtt_ns.max())
                    self._wait_ns = min(_LONGEST_WAIT_NS, max(_SHORTEST_WAIT_NS, wait_ns))
            self._bounds += new
            latest = self.latest
            latest.bounds, latest.wait_ns = tuple(new), self._wait_ns
            latest.ended_ns = time.monotonic_ns()

    def to_one_clock(self, sender: Host, flows: Sequence[Flow]) -> OnOneClock | None:
        """Return flows by the client's clock, with the error; None where there is no bound."""
        self.exchange()
        from_far = sender is self.context.server
        own = [bounds_of(flow, from_far=from_far) for flow in flows]
        with self._lock:
            known = list(self._bounds)
        clocks = offset_within(all_bounds([*known, *own]))
        with self._lock:
            if clocks is None:
                self.why = "too few packets came back, or a clock was set meanwhile"
                return None
            self.found.append(clocks)
            self._errors_ns.append(clocks.error_ns)
        moved = tuple(on_near_clock(flow, clocks, from_far=from_far) for flow in flows)
        return OnOneClock(moved, clocks.error_ns)

    @property
    def error_ns(self) -> float | None:
        """The largest error of all parts; None where the offset of one is unknown, or none was."""
        return None if self.why or not self._errors_ns else max(self._errors_ns)

    def check(self) -> Check:
        """Say how far the clocks were apart, or why one-way figures are missing; never fails."""
        error_ns = self.error_ns
        if error_ns is None:
            why = self.why or "no packet was recorded at both ends"
            words = f"{_MISSING}; their offset is unknown: {why}"
            return Check("one_clock", ok=True, message=words)
        clocks = self.found[-1]
        offset, _ = clocks.at((clocks.start_ns + clocks.end_ns) // 2)
        least, most = clocks.drift_ppm
        message = (
            f"one-way delays are by the client's clock, within {error_ns / 1e6:.3f} ms; the "
            f"server's was ahead by {offset / 1e9:.6f} s and drifted by {least:.0f} to "
            f"{most:.0f} ppm"
        )
        return Check("one_clock", ok=True, message=message, value=error_ns, unit="ns")

    def reported(self) -> dict[str, object]:
        """Return all of it for the trial's details."""
        if self.error_ns is None:
            return {"clocks": self.why or "no packet was recorded at both ends"}
        return {"clocks": [asdict(clocks) for clocks in self.found]}

    def without(self, after: LinkCounters | None) -> LinkCounters | None:
        """Return a link's counters less the frames of the exchanges since the trial's start."""
        if after is None:
            return None
        version: IpVersion = 6 if ":" in self.paths[0].client_address else 4
        headers_bytes = IP_HEADER_BYTES[version] + UDP_HEADER_BYTES
        own_bytes = _PAYLOAD_BYTES + headers_bytes + after.header_bytes

        def less(way: str) -> Mapping[str, Any]:
            seen, frames = getattr(after, way), self._carried[way]
            return {
                **seen,
                "delivered": int(seen["delivered"]) - frames,
                "delivered_bytes": int(seen["delivered_bytes"]) - frames * own_bytes,
            }

        return replace(after, forward=less("forward"), reverse=less("reverse"))

    def restart_count(self) -> None:
        """Begin to count the frames of the exchanges: those before the trial are not in it."""
        self._carried.update(forward=0, reverse=0)

    def _send(self) -> Sequence[Flow]:
        context = replace(
            self.context,
            paths=self.paths,
            samples_dir=None,
            sample_stem=f"{self.name}-clocks-{len(self._bounds)}",
            progress=lambda _progress: None,
            # Neither measures the trial, nor waits in it.
            measuring_processes=lambda _host, _pid: None,
            waited_awake=lambda _host, _ns: None,
            begins=lambda: None,
            first_port=CLOCK_PORT,
            to_one_clock=None,
        )
        flows = plan(
            context,
            name="clocks",
            gap_ns=_GAP_NS,
            packets=_PACKETS,
            payload_bytes=_PAYLOAD_BYTES,
            content={"type": "random"},
            load="each",
        )
        return run_streams(context, flows, drain_ns=self._wait_ns).joined
