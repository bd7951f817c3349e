"""One run of ``tunnelmark-engine sim``: what is simulated, and what came of it."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tunnelmark.engine.events import LONGEST_EVENT, parse_event
from tunnelmark.engine.summary import LinkDirection, Reader, parse_link_direction
from tunnelmark.engine.transactions import AskSummary, parse_ask_summary
from tunnelmark.model.child import Child
from tunnelmark.model.errors import LabError
from tunnelmark.sim.memory import KEPT_BY_ENGINE
from tunnelmark.workloads.bulk import MOST_MODELLED
from tunnelmark.workloads.exchanges import ClientEnd, Exchanged

START_NS: Final = 1_000_000_000
"""When the schedules of a simulation start, in its own time."""
_LOOK_S: Final = 0.1
"""How often it is looked whether the trial should end early."""
_MOST_SECONDS: Final = 4200
"""Of a connection; the engine refuses more."""
_SECOND_CHARACTERS: Final = 176
"""A second of a connection in the summary (docs/engine.md), its five numbers of 20 digits each."""
LONGEST_SUMMARY: Final = MOST_MODELLED * _MOST_SECONDS * _SECOND_CHARACTERS + LONGEST_EVENT
"""In characters: every second of as many connections as there may be, and the rest, which is as
long as other events. Web pages stay below: 64 paths with 50,000 requests of 176 characters."""


@dataclass(frozen=True)
class Busy:
    """What one end of a tunnel did to packets of one way."""

    offered: int
    dropped: int
    busy_ns: int


@dataclass(frozen=True)
class ConnectionSecond:
    """One second of a TCP connection."""

    sent_bytes: int
    delivered_bytes: int
    retransmits: int
    rtt_ns: int | None
    """Smoothed, at its end."""
    window_bytes: int
    """Congestion window at its end."""


@dataclass(frozen=True)
class Connection:
    """What became of a TCP connection."""

    way: str
    timeouts: int
    """Times that its retransmission timer expired."""
    seconds: tuple[ConnectionSecond, ...]
    """Empty if it was not opened."""
    rest_ns: int | None = None
    """How long the last one is, of a load that was ended; None: all are whole."""


@dataclass(frozen=True)
class Simulated:
    """A simulation that finished."""

    ways: Mapping[str, Mapping[str, Any]]
    """``forward`` and ``reverse``, as far as something was sent: summaries of ``send`` and
    ``reflect``."""
    link: Mapping[str, LinkDirection]
    """Counters of the link by direction."""
    ends: tuple[Mapping[str, Busy], ...]
    """By path: ``client wrap``, ``client unwrap`` and the server's; empty without a tunnel."""
    lasted_ns: int
    """In virtual time, with the wait behind the last packet."""
    tcp: tuple[Connection, ...] = ()
    """Connections, those whose data goes forward first."""
    clients: tuple[ClientEnd, ...] = ()
    asked: AskSummary | None = None
    """Of the exchanges of the clients, and of those that ask over UDP; None: there are none."""
    loads: "tuple[tuple[Simulated, ...], ...]" = ()
    """What came of each load, run by run, with the same link and ends."""
    stopped: bool = False
    """A load's run that was ended because the rest was over, whatever it was at."""
    lacking: int | None = None
    """A load that had no further run before the rest was over: then nothing of this counts."""


def simulate(
    engine: str, document: Mapping[str, object], cancelled: Callable[[], bool]
) -> Simulated:
    """Run a simulation; ``LabError`` if the engine refuses it, fails, or it is to end early."""
    # A file, not a pipe: `communicate` forgets what it did not write before its timeout.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(json.dumps(document).encode())
        stdin.seek(0)
        # A group of its own: Ctrl-C ends the run in order, and that ends this.
        with Child(
            [engine, "sim", "-"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **KEPT_BY_ENGINE},
            process_group=0,
        ) as process:
            try:
                output, errors = _output(process, cancelled)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
    lines = output.decode("utf-8", "replace").splitlines()
    event = parse_event(lines[-1], longest=LONGEST_SUMMARY) if lines else {}
    if event.get("event") == "error":
        raise LabError(f"the simulator (sim): {event.get('message')}")
    if process.returncode != 0 or event.get("event") != "summary":
        words = errors.decode("utf-8", "replace").strip()[-200:]
        raise LabError(f"the simulator (sim) ended with status {process.returncode}: {words}")
    return _parse(event)


def _output(process: Child, cancelled: Callable[[], bool]) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            if cancelled():
                raise LabError("the trial was ended early") from None


def _parse(event: Mapping[str, Any]) -> Simulated:
    read = Reader(event, "summary of sim")
    ends = event.get("paths")
    if not isinstance(ends, list):
        raise LabError(f"the engine's summary of sim: paths is {ends!r:.80}, must be a list")
    whole = Simulated(
        ways={},
        link={
            way: parse_link_direction(event.get(key) or {}, f"summary of sim.{key}")
            for way, key in (("forward", "a_to_b"), ("reverse", "b_to_a"))
        },
        ends=tuple(_ends(one) for one in ends),
        lasted_ns=read.whole("end_ns") - START_NS,
        lacking=read.whole_or_none("lacking") if "lacking" in event else None,
    )
    loads = event.get("loads") or []
    return replace(
        _traffic(whole, read, event),
        loads=tuple(
            tuple(
                replace(
                    _traffic(whole, Reader(run, "loads of sim"), run),
                    stopped=place == len(runs) - 1,
                )
                for place, run in enumerate(runs)
            )
            for runs in loads
        ),
    )


def _traffic(whole: Simulated, read: Reader, event: Mapping[str, Any]) -> Simulated:
    """Return a simulation with what was sent in it by one of those beside each other."""
    return replace(
        whole,
        ways={name: event[name] for name in ("forward", "reverse") if event.get(name)},
        tcp=tuple(_connection(one) for one in read.objects("tcp")) if "tcp" in event else (),
        clients=tuple(_client(one) for one in read.objects("clients"))
        if "clients" in event
        else (),
        asked=parse_ask_summary(event["asked"]) if _asks(event) else None,
    )


def _asks(event: Mapping[str, Any]) -> bool:
    return bool(event.get("asked", {}).get("flows"))


def _connection(read: Reader) -> Connection:
    return Connection(
        way=read.text("way"),
        timeouts=read.whole("timeouts"),
        rest_ns=read.whole_or_none("rest_ns"),
        seconds=tuple(
            ConnectionSecond(
                sent_bytes=one.whole("sent_bytes"),
                delivered_bytes=one.whole("delivered_bytes"),
                retransmits=one.whole("retransmits"),
                rtt_ns=one.whole_or_none("rtt_ns"),
                window_bytes=one.whole("window_bytes"),
            )
            for one in read.objects("seconds")
        ),
    )


def _client(read: Reader) -> ClientEnd:
    return ClientEnd(
        gave_up=read.whole("gave_up"),
        stopped=read.whole("stopped"),
        exchanges=tuple(
            Exchanged(
                stage=one.whole("stage"),
                place=one.whole("exchange"),
                began_ns=one.whole("began_ns"),
                connected_ns=one.whole_or_none("connected_ns"),
                opened_ns=one.whole_or_none("opened_ns"),
                first_ns=one.whole("first_ns"),
                done_ns=one.whole("done_ns"),
            )
            for one in read.objects("exchanges")
        ),
        retransmits=read.whole("retransmits"),
        timeouts=read.whole("timeouts"),
    )


def _ends(path: Mapping[str, Any] | None) -> Mapping[str, Busy]:
    if path is None:
        return {}
    return {
        f"{end} {job}": Busy(
            *(int(path[end][job][key]) for key in ("offered", "dropped", "busy_ns"))
        )
        for end in ("client", "server")
        for job in ("wrap", "unwrap")
    }
