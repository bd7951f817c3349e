"""The two processes of one echo trial: reflector first, then sender, and what both leave."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from signal import SIGTERM
from typing import Any, Final, Self

from tunnelmark.engine import config, records
from tunnelmark.engine.events import parse_event, wait_for
from tunnelmark.engine.summary import (
    ReflectSummary,
    SendSummary,
    parse_reflect_summary,
    parse_send_summary,
)
from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.faults import UnwritableError, write
from tunnelmark.model.host import Host, MappedFiles, Process
from tunnelmark.model.together import together
from tunnelmark.model.trial import Progress
from tunnelmark.workloads.base import TrialContext

REALTIME_PRIORITY: Final = 10
_READY_LIMIT_S: Final = 10.0
_END_LIMIT_S: Final = 5.0
_LOOK_S: Final = 0.25
"""How often it is looked whether the trial should end early."""
_MOST_EVENTS: Final = 1_000_000
_LARGEST_RECORDS_BYTES: Final = 8 << 30


@dataclass
class Exchanged:
    """What came of it; None for what did not come."""

    problems: list[str] = field(default_factory=list)
    sent: SendSummary | None = None
    reflected: ReflectSummary | None = None
    send: records.Table | None = None
    reflect: records.Table | None = None
    samples: tuple[str, ...] = ()
    """Names of the files left in the samples directory."""


class Exchange:
    """One run of reflector and sender. Leaving ends both and removes their files."""

    def __init__(
        self,
        context: TrialContext,
        flows: Sequence[config.Flow],
        *,
        drain_ns: int,
        late_ns: int,
        answer: bool = True,
        segment: bool = False,
    ) -> None:
        """Prepare; nothing is started yet. Without ``answer`` the far end only counts."""
        self._segment = segment
        self._context = context
        self._flows = flows
        self._drain_ns = drain_ns
        self._late_ns = late_ns
        self._answer = answer
        stem = context.sample_stem
        self._send_file = context.client.work_dir / f"{stem}.send.rec"
        self._reflect_file = context.server.work_dir / f"{stem}.reflect.rec"
        self._processes: list[Process] = []
        self._found = Exchanged()

    def __enter__(self) -> Self:
        """Return the exchange."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both processes and remove their files on the hosts."""
        for process in reversed(self._processes):
            process.stop()
        together(*(partial(_remove, host, path) for host, path in self._files()))

    def run(self) -> Exchanged:
        """Run to the end, to a death or until cancelled; what went wrong is in ``problems``."""
        try:
            reflector = self._start_reflector()
            wait_for(reflector, "ready", limit_s=_READY_LIMIT_S)
            sender = self._start_sender()
            self._found.sent = sent = parse_send_summary(self._follow(sender, reflector))
            self._context.waited_awake(self._context.client.name, sent.awake_ns)
            self._expect_good_end("sender", sender)
            self._found.reflected = self._end(reflector)
            self._read()
        except UnwritableError:
            raise
        except (LabError, ResultError, TimeoutError) as error:
            self._found.problems.append(str(error))
        return self._found

    def _start_reflector(self) -> Process:
        document = config.reflect_config(
            sorted({flow.reflector for flow in self._flows if flow.target_netns is None}),
            [flow.session for flow in self._flows],
            records=str(self._reflect_file),
            realtime_priority=REALTIME_PRIORITY,
            parent_pid=self._context.owner_pid,
            receive_time=self._context.receive_time,
            answer=self._answer,
            elsewhere=sorted(
                {(flow.reflector, netns) for flow in self._flows if (netns := flow.target_netns)}
            ),
        )
        return self._start(self._context.server, "reflect", document)

    def _start_sender(self) -> Process:
        document = config.send_config(
            self._flows,
            seed=self._context.seed,
            drain_ns=self._drain_ns,
            late_ns=self._late_ns,
            records=str(self._send_file),
            realtime_priority=REALTIME_PRIORITY,
            parent_pid=self._context.owner_pid,
            receive_time=self._context.receive_time,
            segment=self._segment,
            spin=self._context.spin,
        )
        self._context.begins()
        return self._start(self._context.client, "send", document)

    def _start(self, host: Host, command: str, document: Mapping[str, object]) -> Process:
        process = host.spawn(
            [self._context.engine, command, "-"],
            # One log for all trials: what is in it is standard error, which a good engine lacks.
            name=f"echo-{command}",
            stdin=json.dumps(document).encode(),
            lines=True,
        )
        self._processes.append(process)
        self._context.measuring_processes(host.name, process.pid)
        return process

    def _follow(self, sender: Process, reflector: Process) -> Mapping[str, Any]:
        """Read the sender's events to its summary; a reflector that dies ends the trial early."""
        spans = [flow.span_ns for flow in self._flows]
        limit_s = max(spans) / 1e9 * 1.5 + self._drain_ns / 1e9 + _READY_LIMIT_S
        waited_s, ending = 0.0, False
        reason: str | None = None
        while True:
            try:
                line = sender.read_line(_LOOK_S)
            except TimeoutError:
                waited_s += _LOOK_S
                line = ""
            if line is None:
                words = sender.log_tail(1) or f"exit status {sender.poll()}"
                raise LabError(f"the sender (send) ended without a summary: {words}")
            if line:
                event = parse_event(line)
                if event["event"] == "summary":
                    return event
                if event["event"] == "error":
                    raise LabError(f"the sender (send): {event.get('message')}")
                self._progress(event)
            if ending:
                limit_s = self._ending_s(reason)
                if waited_s > limit_s:
                    raise LabError(f"the sender (send) did not end within {limit_s:g} s")
                continue
            reason = self._reason_to_end(reflector, waited_s > limit_s)
            if reason or self._context.enough():
                self._found.problems += [reason] if reason else []
                ending, waited_s = True, 0.0
                _end_in_order(sender)

    def _ending_s(self, reason: str | None) -> float:
        """Return how long a sender that should end may take until it has reported.

        It waits for its drain where a packet was lost, or where none has a reply. Killed before
        that, only trials without a loss would be valid.
        """
        if reason or self._context.cancelled():
            return _END_LIMIT_S  # the trial is invalid anyway
        return self._drain_ns / 1e9 + _END_LIMIT_S

    def _reason_to_end(self, reflector: Process, late: bool) -> str | None:
        if (status := reflector.poll()) is not None:
            words = reflector.log_tail(1)
            return f"the reflector (reflect) died with status {status}" + (
                f": {words}" if words else ""
            )
        if self._context.cancelled() and not self._context.enough():
            return "the trial was ended early"
        return "the sender (send) took more than 1.5 times as long as planned" if late else None

    def _progress(self, event: Mapping[str, Any]) -> None:
        flows = event.get("flows")
        if event["event"] != "progress" or not isinstance(flows, list):
            return
        reported = [flow for flow in flows if isinstance(flow, dict)]
        sent, returned = (
            sum(count for flow in reported if isinstance(count := flow.get(key), int))
            for key in ("sent", "returned")
        )
        due = sum(flow.span_ns / flow.gap_ns for flow in self._flows)
        figures = {"packets_sent": float(sent), "packets_returned": float(returned)}
        last = [rtt for flow in reported if isinstance(rtt := flow.get("rtt_last_ns"), int)]
        if last:
            figures["rtt_last_ns"] = float(last[-1])
        self._context.progress(Progress(min(1.0, sent / due), figures))

    def _end(self, reflector: Process) -> ReflectSummary | None:
        """End the reflector in order and return what it says; None if it was dead already."""
        dead = reflector.poll() is not None
        reflector.stop(_END_LIMIT_S)
        for _ in range(_MOST_EVENTS):
            line = reflector.read_line(_END_LIMIT_S)
            if line is None:
                break
            event = parse_event(line)
            if event["event"] == "error":
                raise LabError(f"the reflector (reflect): {event.get('message')}")
            if event["event"] == "summary":
                self._expect_good_end("reflector", reflector)
                return parse_reflect_summary(event)
        if not dead:
            raise LabError("the reflector (reflect) ended without a summary")
        return None

    def _expect_good_end(self, name: str, process: Process) -> None:
        if (status := process.wait(_END_LIMIT_S)) != 0:
            self._found.problems.append(f"the {name} ended with status {status}")

    def _read(self) -> None:
        found, kept = self._found, []
        data = [_content(host, path) for host, path in self._files()]
        found.send = records.read_send(data[0], "records of the sender")
        found.reflect = records.read_reflect(data[1], "records of the reflector")
        most = self._context.largest_records_bytes
        small = most is None or max(map(len, data)) <= most
        if (directory := self._context.samples_dir) is not None and small:
            for (_, path), content in zip(self._files(), data, strict=True):
                write(directory / path.name, content)
                kept.append(path.name)
        found.samples = tuple(kept)

    def _files(self) -> tuple[tuple[Host, PurePosixPath], tuple[Host, PurePosixPath]]:
        return (
            (self._context.client, self._send_file),
            (self._context.server, self._reflect_file),
        )


def _end_in_order(sender: Process) -> None:
    """Ask a sender to end, so that its records are complete to here; one of a lab takes its time.

    In virtual time it has ended then.
    """
    ask = getattr(sender, "signal", None)
    sender.stop() if ask is None else ask(SIGTERM)


def _content(host: Host, path: PurePosixPath) -> bytes | memoryview:
    if isinstance(host, MappedFiles):
        return host.mapped(path, limit_bytes=_LARGEST_RECORDS_BYTES)
    return host.get(path, limit_bytes=_LARGEST_RECORDS_BYTES)


def _remove(host: Host, path: PurePosixPath) -> None:
    host.run(["rm", "-f", str(path)], check=False)
