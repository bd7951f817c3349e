"""UDP echo: datagrams at a fixed gap, answered by the far end; every packet is recorded."""

import contextlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine import config, records
from tunnelmark.engine.events import parse_event, wait_for
from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, Ratio
from tunnelmark.model.trial import Measurement
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, Progress, TrialContext, Workload
from tunnelmark.workloads.echo_metrics import flow_metrics, total_metrics

PORT: Final = 7700
_REALTIME_PRIORITY: Final = 10
_READY_LIMIT_S: Final = 10.0
_HOUR_NS: Final = 3600 * 10**9
_LARGEST_PACKETS: Final = 50_000_000


class UdpEchoParams(Params):
    """A stream of datagrams and their answers."""

    gap: Annotated[DurationNs, Field(ge=1000, le=60 * 10**9)] = Field(
        description="time from packet to packet on the sender's absolute schedule"
    )
    payload_bytes: Annotated[int, Field(ge=25, le=65507)] = Field(
        description="UDP payload of each datagram"
    )
    packets: Annotated[int, Field(ge=1, le=_LARGEST_PACKETS)] | None = Field(
        None, description="how many packets; this or duration"
    )
    duration: Annotated[DurationNs, Field(ge=10**6, le=_HOUR_NS)] | None = Field(
        None, description="how long packets are sent; this or packets"
    )
    content: Literal["zero", "random", "repeat", "compressible"] = Field(
        "random", description="what fills the payload; a compressing tunnel decides by it"
    )
    compressible_share: Ratio = Field(0.5, description="share of zeros with content compressible")
    load: Literal["each", "spread"] = Field(
        "spread",
        description="several tunnels: the stream is spread over them, or each has all of it",
    )
    late: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        10**9, description="an answer after this is a late arrival"
    )
    drain: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        10**9, description="how long to wait for answers at the end"
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if (self.packets is None) == (self.duration is None):
            raise ValueError("needs either packets or duration")
        return self

    @property
    def packet_count(self) -> int:
        """Packets in all, of one stream."""
        if self.packets is not None:
            return self.packets
        return -(-(self.duration or 0) // self.gap)


class UdpEcho(Workload):
    """One reflector and one sender per trial, a flow for each path."""

    kind: ClassVar[str] = "udp_echo"
    title: ClassVar[str] = "UDP echo"
    params_type: ClassVar[type[Params]] = UdpEchoParams
    metrics: ClassVar[tuple[str, ...]] = (
        "goodput_bit_s",
        "goodput_echo_bit_s",
        "sent_load_bit_s",
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "rtt_min_ns",
        "rtt_p50_ns",
        "rtt_p99_ns",
        "owd_forward_p50_ns",
        "owd_reverse_p50_ns",
        "ipdv_p50_ns",
        "pdv_p99_ns",
        "duplicates_ratio",
        "reordered_ratio",
        "late_ratio",
        "receiver_overrun_ratio",
    )
    params: UdpEchoParams

    def need(self) -> Need:
        """Return nothing: the engine is all it needs."""
        return Need()

    def conflict(self, paths: int) -> str | None:
        """Each of the tunnels needs a packet of its own."""
        if self.params.load == "spread" and self.params.packet_count < paths:
            return (
                f"packets is {self.params.packet_count}, must be at least the {paths} tunnels "
                "over which they are spread"
            )
        return None

    @property
    def expected_s(self) -> float:
        """Sending, and a round trip of a slow link."""
        return self.params.packet_count * self.params.gap / 1e9 + 0.3

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        trial = _Trial(self.params, context)
        try:
            return trial.run()
        finally:
            trial.close()


@dataclass(frozen=True)
class _Files:
    send: PurePosixPath
    reflect: PurePosixPath


class _Trial:
    """One trial: its processes, files and evidence."""

    def __init__(self, params: UdpEchoParams, context: TrialContext) -> None:
        self._params = params
        self._context = context
        self._random = random.Random(f"{context.seed}/udp_echo/keys")  # noqa: S311 - a test stream
        stem = context.sample_stem
        self._files = _Files(
            context.client.work_dir / f"{stem}.send.rec",
            context.server.work_dir / f"{stem}.reflect.rec",
        )
        self._reflector: Process | None = None
        self._sender: Process | None = None
        self._flows = self._plan()
        self._problems: list[str] = []

    def run(self) -> Outcome:
        summary, reflected = self._exchange()
        checks = [self._alive()]
        if summary is None:
            return Outcome((), tuple(checks), 0, 0, 0.0)
        send, reflect = self._read(checks)
        if send is None or reflect is None:
            return Outcome((), tuple(checks), 0, 0, 0.0)
        numbers = range(len(self._flows))
        joined = [records.join(send, reflect, number) for number in numbers]
        told = [flow for flow in summary["flows"] if isinstance(flow, dict)]
        measurements = [
            Measurement(str(number), flow_metrics(flow, told[number]))
            for number, flow in zip(numbers, joined, strict=True)
        ]
        measurements.insert(0, Measurement("total", total_metrics(joined, told)))
        checks += self._evidence(summary, reflected, joined)
        arrived = sum(int(flow.arrived.sum()) for flow in joined)
        returned = sum(int(flow.returned.sum()) for flow in joined)
        sizes = self._params.payload_bytes
        spans = [flow.sent_ns for flow in joined if len(flow.sent_ns)]
        measuring_ns = (
            max(int(span[-1]) for span in spans) - min(int(span[0]) for span in spans)
            if spans
            else 0
        )
        return Outcome(
            tuple(measurements),
            tuple(checks),
            (arrived + returned) * sizes,
            arrived + returned,
            measuring_ns / 1e9,
            details={"send": dict(summary), "reflect": dict(reflected or {})},
            samples=self._keep(),
        )

    def close(self) -> None:
        """End both processes and remove their files on the hosts."""
        for process in (self._sender, self._reflector):
            if process is not None:
                process.stop()
        for host, path in (
            (self._context.client, self._files.send),
            (self._context.server, self._files.reflect),
        ):
            host.run(["rm", "-f", str(path)], check=False)

    def _plan(self) -> list[config.Flow]:
        params, context = self._params, self._context
        count = len(context.paths)
        spread = count if params.load == "spread" else 1
        content: dict[str, object] = {"type": params.content}
        if params.content == "repeat":
            content["pattern"] = b"tunnelmark ".hex()
        if params.content == "compressible":
            content["ratio"] = params.compressible_share
        flows = []
        for number, path in enumerate(context.paths):
            # Spread: packet k of the stream belongs to path k modulo n, so the paths take turns.
            share, rest = divmod(params.packet_count, spread)
            own = share + (1 if spread > 1 and number < rest else 0) or 1
            flows.append(
                config.Flow(
                    session=config.Session(
                        number, self._random.getrandbits(32), self._random.randbytes(16).hex()
                    ),
                    target=config.address(path.server_address, PORT),
                    source=config.address(path.client_address, 0),
                    interface=None,
                    gap_ns=params.gap * spread,
                    start_offset_ns=params.gap * number // (1 if spread > 1 else count),
                    packets=own if spread > 1 else params.packet_count,
                    duration_ns=None,
                    payload_bytes=params.payload_bytes,
                    content=content,
                )
            )
        return flows

    def _exchange(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """Run reflector and sender; return both summaries, None for one that did not come."""
        try:
            self._reflector = self._start(
                self._context.server,
                "reflect",
                config.reflect_config(
                    sorted({flow.target for flow in self._flows}),
                    [flow.session for flow in self._flows],
                    records=str(self._files.reflect),
                    realtime_priority=_REALTIME_PRIORITY,
                    parent_pid=self._context.owner_pid,
                ),
            )
            wait_for(self._reflector, "ready", limit_s=_READY_LIMIT_S)
            self._sender = self._start(
                self._context.client,
                "send",
                config.send_config(
                    self._flows,
                    seed=self._context.seed,
                    drain_ns=self._params.drain,
                    late_ns=self._params.late,
                    records=str(self._files.send),
                    realtime_priority=_REALTIME_PRIORITY,
                    parent_pid=self._context.owner_pid,
                ),
            )
            summary = self._follow(self._sender)
            status = self._sender.wait(5.0)
            if status != 0:
                self._problems.append(f"the sender ended with status {status}")
        except (LabError, TimeoutError) as error:
            self._problems.append(str(error))
            return None, None
        return summary, self._stop_reflector()

    def _start(self, host: Host, command: str, document: Mapping[str, object]) -> Process:
        process = host.spawn(
            [self._context.engine, command, "-"],
            name=f"{self._context.sample_stem}.{command}",
            stdin=json.dumps(document).encode(),
            lines=True,
        )
        self._context.measuring_processes(host.name, process.pid)
        return process

    def _follow(self, sender: Process) -> Mapping[str, Any]:
        """Read the sender's events to its summary; a reflector that dies ends the trial early."""
        expected = self._params.packet_count * self._params.gap / 1e9
        limit_s = expected * 1.5 + self._params.drain / 1e9 + _READY_LIMIT_S
        waited = 0.0
        while True:
            try:
                return wait_for(sender, "summary", limit_s=_SLICE_S, other=self._progress)
            except LabError:
                if sender.poll() is not None:
                    raise
                waited += _SLICE_S
                dead = self._reflector is not None and self._reflector.poll() is not None
                if dead or self._context.cancelled() or waited > limit_s:
                    reason = "the reflector died" if dead else "the trial was ended early"
                    self._problems.append(f"{reason} after {waited:.0f} s")
                    sender.stop()

    def _progress(self, event: Mapping[str, Any]) -> None:
        if event["event"] != "progress":
            return
        sent = sum(int(flow["sent"]) for flow in event["flows"])
        returned = sum(int(flow["returned"]) for flow in event["flows"])
        due = sum(flow.packets or 0 for flow in self._flows)
        figures = {"packets_sent": float(sent), "packets_returned": float(returned)}
        last = [flow["rtt_last_ns"] for flow in event["flows"] if flow.get("rtt_last_ns")]
        if last:
            figures["rtt_last_ns"] = float(last[-1])
        self._context.progress(Progress(min(1.0, sent / due), figures))

    def _stop_reflector(self) -> Mapping[str, Any] | None:
        reflector = self._reflector
        assert reflector is not None  # noqa: S101 - started in _exchange
        status = reflector.stop()
        if status != 0:
            self._problems.append(f"the reflector ended with status {status}")
            return None
        summary = None
        with contextlib.suppress(TimeoutError, LabError):
            while (line := reflector.read_line(2.0)) is not None:
                event = parse_event(line)
                if event["event"] == "summary":
                    summary = event
        if summary is None:
            self._problems.append("the reflector gave no summary")
        return summary

    def _read(self, checks: list[Check]) -> tuple[records.Table | None, records.Table | None]:
        context = self._context
        try:
            send = records.read_send(context.client.get(self._files.send), "records of the sender")
            reflect = records.read_reflect(
                context.server.get(self._files.reflect), "records of the reflector"
            )
        except (LabError, ResultError) as error:
            checks.append(Check("records", ok=False, message=str(error)))
            return None, None
        return send, reflect

    def _alive(self) -> Check:
        message = "; ".join(self._problems) or "sender and reflector ran to their end"
        return Check("processes", ok=not self._problems, message=message)

    def _evidence(
        self,
        summary: Mapping[str, Any],
        reflected: Mapping[str, Any] | None,
        joined: Sequence[records.Flow],
    ) -> list[Check]:
        return [
            *_lateness(summary, self._params.gap * _spread_of(self._flows, self._params)),
            _all_sent(summary),
            _conserved(summary, reflected, joined),
            _overrun(summary, reflected),
        ]

    def _keep(self) -> tuple[str, ...]:
        directory = self._context.samples_dir
        if directory is None:
            return ()
        kept = []
        for host, path in (
            (self._context.client, self._files.send),
            (self._context.server, self._files.reflect),
        ):
            (directory / path.name).write_bytes(host.get(path))
            kept.append(path.name)
        return tuple(kept)


_SLICE_S: Final = 1.0
_LATENESS_SHARE: Final = 0.1
_LATENESS_FLOOR_NS: Final = 1_000_000


def _spread_of(flows: Sequence[config.Flow], params: UdpEchoParams) -> int:
    return len(flows) if params.load == "spread" else 1


def _lateness(summary: Mapping[str, Any], gap_ns: int) -> list[Check]:
    """Judge the 99th percentile of sent minus scheduled, over all flows."""
    worst = max((flow["lateness_ns"] or {}).get("p99", 0) for flow in summary["flows"])
    limit = max(int(gap_ns * _LATENESS_SHARE), _LATENESS_FLOOR_NS)
    return [
        Check(
            "sender_lateness",
            ok=worst <= limit,
            message=f"1 % of the packets left {worst / 1e6:.3f} ms late or more; "
            f"the limit is {limit / 1e6:.3f} ms",
            value=float(worst),
            limit=float(limit),
            unit="ns",
        )
    ]


def _all_sent(summary: Mapping[str, Any]) -> Check:
    due = sum(flow["due"] for flow in summary["flows"])
    sent = sum(flow["sent"] for flow in summary["flows"])
    return Check(
        "all_sent",
        ok=due == sent,
        message=f"{sent} of {due} packets that were due were sent",
        value=float(sent),
        limit=float(due),
        unit="packet",
    )


def _conserved(
    summary: Mapping[str, Any],
    reflected: Mapping[str, Any] | None,
    joined: Sequence[records.Flow],
) -> Check:
    """Sent = arrived + lost forward; answered = returned + lost in reverse; both ends agree."""
    sent = sum(flow["sent"] for flow in summary["flows"])
    back = sum(flow["returned"] + flow["late"] for flow in summary["flows"])
    recorded = sum(len(flow.sent_ns) for flow in joined)
    arrived = sum(int(flow.arrived.sum()) for flow in joined)
    returned = sum(int(flow.returned.sum()) for flow in joined)
    ghosts = sum(int((flow.returned & ~flow.arrived).sum()) for flow in joined)
    received = sum(flow["received"] for flow in reflected["flows"]) if reflected else -1
    ok = recorded == sent and returned == back and received == arrived and ghosts == 0
    return Check(
        "conservation",
        ok=ok and returned <= arrived <= sent,
        message=f"sent {sent} (recorded {recorded}), reached the reflector {arrived} "
        f"(it counted {received}), came back {returned} (counted {back})",
    )


def _overrun(summary: Mapping[str, Any], reflected: Mapping[str, Any] | None) -> Check:
    count = sum(flow["overrun"] for flow in summary["flows"])
    count += reflected["overrun"] if reflected else 0
    return Check(
        "receiver_overrun",
        ok=count == 0,
        message=f"the kernel dropped {count} packets at a full receive buffer of ours",
        value=float(count),
        limit=0.0,
        unit="packet",
    )
