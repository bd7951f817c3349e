"""The link emulators of a lab: one engine process for each link, and what they count together."""

import json
import signal
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self

from tunnelmark.engine.events import Event
from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.engine.pump import EventPump
from tunnelmark.hosts.undoing import do_all
from tunnelmark.lab.place import LabHost, LabProcess
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.seeds import stream
from tunnelmark.model.together import together
from tunnelmark.probes.series import COUNTED, WAYS

_READY_LIMIT_S: Final = 10.0
_REALTIME_PRIORITY: Final = 20
_RING_FRAMES: Final = 8192
"""That wait to be received at all links together: some 2 KiB of the kernel's memory each, twice."""
_LEAST_RING_FRAMES: Final = 512
ETHERNET_HEADER_BYTES: Final = 14
"""What an emulator counts in each frame that is not part of an IP packet."""
_MOST_REPORTS: Final = 2 * 3600
"""Reports of an emulator that are kept: an hour of them, and those that were asked for."""
# A time and the counters of both directions: as objects they would be seven kilobytes.
_REPORT: Final = struct.Struct(f"<{1 + len(WAYS) * len(COUNTED)}q")


@dataclass(frozen=True)
class LinkCounters:
    """Counters of both directions of the emulator, as ``docs/engine.md`` names them."""

    forward: Mapping[str, Any]
    reverse: Mapping[str, Any]
    header_bytes: int = ETHERNET_HEADER_BYTES
    """What they count in each frame that is not part of the wire rate."""
    awake_ns: int = 0
    """Processor time that the emulator spent awake, waiting for a frame's time."""

    @classmethod
    def of(cls, event: Event, header_bytes: int = ETHERNET_HEADER_BYTES) -> Self:
        """Read a report of the emulator."""
        awake_ns = int(event.get("awake_ns", 0))
        return cls(event["a_to_b"], event["b_to_a"], header_bytes, awake_ns)


Reports = list[tuple[int, dict[str, dict[str, int]]]]
"""What emulators said: the time (monotonic, ns) at which it came, ``COUNTED`` of each direction."""


class Emulators:
    """The links of a lab, which carry until they are stopped."""

    def __init__(
        self, host: LabHost, link: AnyLinkSpec, *, engine: str, parent_pid: int, spin: bool = True
    ) -> None:
        """Put what the link needs onto its host; ``engine`` and ``parent_pid`` are as it has them.

        With ``spin`` they wait awake for the last stretch before a frame is due.

        Nothing is started yet.
        """
        self._host, self._link, self._engine = host, link, engine
        self._parent_pid, self._spin = parent_pid, spin
        self._links: list[_Emulator] = []
        for name, content in link.files.items():
            host.put(host.work_dir / name, content)

    @property
    def processes(self) -> tuple[LabProcess, ...]:
        """One for each link, that of the first client first."""
        return tuple(one.process for one in self._links)

    def start(self, links: int) -> None:
        """Start them between ``a`` and ``b``, ``a1`` and ``b1`` …, each with a seed of its own.

        Raises ``LabFailedError`` with the last words of one that is not ready.
        """
        for number in range(links):
            end = str(number or "")
            link = self._link
            if number:
                link = replace(link, seed=stream(link.seed, f"client/{number}"))
            config = link.to_json(
                a=f"a{end}",
                b=f"b{end}",
                parent_pid=self._parent_pid,
                realtime_priority=_REALTIME_PRIORITY,
                files_dir=str(self._host.work_dir),
                spin=self._spin,
            )
            if links > 1:
                config["ring_frames"] = max(_LEAST_RING_FRAMES, _RING_FRAMES // links)
            process = self._host.spawn(
                [self._engine, "link", "-"],
                name=f"link-emulator{end}",
                stdin=json.dumps(config).encode(),
                lines=True,
            )
            self._links.append(_Emulator(process))
        for one in self._links:
            one.wait()

    def counters(self) -> LinkCounters | None:
        """Return the counters of all links now; None if one does not answer."""
        return self._answer(signal.SIGUSR1)

    def begin(self) -> LinkCounters | None:
        """Let changes, traces and recent lateness of the links begin now; return the counters."""
        return self._answer(signal.SIGUSR2)

    def reports(self, since_ns: int) -> Reports:
        """Return the reports of every second since a time (monotonic), of all links together."""
        return joined([one.reports for one in self._links], since_ns)

    def problem(self) -> str | None:
        """Return which of them ended and why, or None."""
        for number, one in enumerate(self._links):
            if (status := one.process.poll()) is not None:
                words = one.words() or f"exit status {status}"
                which = f" of client {number}" if len(self._links) > 1 else ""
                return f"the link emulator{which} ended: {words}"
        return None

    def stop(self) -> None:
        """End them; tolerates being called twice."""
        do_all(*(one.process.stop for one in self._links))

    def _answer(self, asked: signal.Signals) -> LinkCounters | None:
        found = together(*(partial(one.answer, asked) for one in self._links))
        known = [one for one in found if one is not None]
        return summed(known) if len(known) == len(found) else None


class _Emulator:
    """One link."""

    def __init__(self, process: LabProcess) -> None:
        self.process = process
        self._events = EventPump()
        self._reports: deque[bytes] = deque(maxlen=_MOST_REPORTS)
        self._events.start(process, self._note)

    @property
    def reports(self) -> Reports:
        return [unpacked(one) for one in list(self._reports)]

    def words(self) -> str:
        return self._events.error or self.process.log_tail(1)

    def wait(self) -> None:
        if not self._events.ready.wait(_READY_LIMIT_S) or self._events.error:
            raise LabFailedError(f"the link emulator is not ready: {self.words() or 'no event'}")

    def answer(self, asked: signal.Signals) -> LinkCounters | None:
        if self.process.poll() is not None:
            return None
        event = self._events.ask(partial(self.process.signal, asked))
        return None if event is None else LinkCounters.of(event)

    def _note(self, event: Event) -> None:
        if (report := packed(time.monotonic_ns(), event)) is not None:
            self._reports.append(report)


def packed(at_ns: int, event: Event) -> bytes | None:
    """Return what is kept of a report; None where it has not all of it. Pure."""
    ways = [event.get("a_to_b"), event.get("b_to_a")]
    counts = [way.get(key) for way in ways if isinstance(way, dict) for key in COUNTED]
    try:
        return _REPORT.pack(at_ns, *counts)
    except struct.error:
        return None


def unpacked(report: bytes) -> tuple[int, dict[str, dict[str, int]]]:
    """Return what ``packed`` kept."""
    at_ns, *counts = _REPORT.unpack(report)
    found = iter(counts)
    return at_ns, {way: {key: next(found) for key in COUNTED} for way in WAYS}


def summed(links: Sequence[LinkCounters]) -> LinkCounters:
    """Return what some links counted together; lateness is that of the latest of them. Pure."""
    if len(links) == 1:
        return links[0]
    return LinkCounters(
        _summed([one.forward for one in links]),
        _summed([one.reverse for one in links]),
        links[0].header_bytes,
        sum(one.awake_ns for one in links),
    )


def joined(links: Sequence[Reports], since_ns: int) -> Reports:
    """Return a report of all links for each of the first link's since a time. Pure.

    Of the others each counts as it was last heard of; before all were heard of there is none.
    """
    if len(links) == 1:
        return [one for one in links[0] if one[0] >= since_ns]
    found: Reports = []
    if not links:
        return found
    places = [0] * len(links)
    for at_ns, own in links[0]:
        for number, reports in enumerate(links):
            while places[number] < len(reports) and reports[places[number]][0] <= at_ns:
                places[number] += 1
        if at_ns >= since_ns and all(places):
            each = [own, *(links[n][places[n] - 1][1] for n in range(1, len(links)))]
            counts = {
                way: {key: sum(one[way][key] for one in each) for key in COUNTED} for way in WAYS
            }
            found.append((at_ns, counts))
    return found


def _summed(ways: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, first in ways[0].items():
        values = [way.get(key) for way in ways]
        if key.startswith("lateness"):
            known = [value for value in values if value is not None]
            # Each figure is that of the link where it is worst.
            names = dict.fromkeys(name for late in known for name in late)
            worst = {name: max(late.get(name, 0) for late in known) for name in names}
            found[key] = worst or None
        elif key == "kinds":
            found[key] = _kinds(values)
        elif isinstance(first, int | float) and not isinstance(first, bool):
            found[key] = sum(value for value in values if value is not None)
        else:
            found[key] = first
    return found


def _kinds(values: Sequence[Any]) -> dict[str, Any] | None:
    """Return frames by what their headers say, as docs/engine.md has it."""
    if any(value is None for value in values):
        return None
    counted: dict[str, dict[str, Any]] = {}
    for value in values:
        for one in value["counted"]:
            name = json.dumps({k: v for k, v in one.items() if k != "frames"}, sort_keys=True)
            known = counted.setdefault(name, {**one, "frames": 0})
            known["frames"] += one["frames"]
    others = sum(int(value["others"]) for value in values)
    return {"counted": list(counted.values()), "others": others}
