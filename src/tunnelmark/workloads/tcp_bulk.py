"""Bulk data over TCP by iperf3 on both hosts: as much as goes through, for a time."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import LabError
from tunnelmark.model.faults import write
from tunnelmark.model.host import Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, SizeBytes
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.bulk import MOST_MODELLED, BulkFlow, CarryBulk
from tunnelmark.workloads.congestion import TcpParams, TcpWorkload
from tunnelmark.workloads.iperf3 import LARGEST_REPORT_BYTES, parse_report
from tunnelmark.workloads.programs import Bench, words
from tunnelmark.workloads.quantiles import quantile
from tunnelmark.workloads.streams import plan, run_streams
from tunnelmark.workloads.tcp_figures import Direction, Reported, figures, received, series
from tunnelmark.workloads.udp_echo import SMALLEST_PAYLOAD_BYTES

MOST_STREAMS: Final = 128
"""What iperf3 itself allows."""
_LARGEST_CONTENT_BYTES: Final = 64 << 20
_CONNECT_LIMIT_MS: Final = 10_000
_END_LIMIT_S: Final = 30.0
"""For the handshake, for what is queued at the end, and for the exchange of results after it."""
_FLUSH_LIMIT_S: Final = 20.0
_IDLE_PACKETS: Final = 20
_IDLE_GAP_NS: Final = 10_000_000
_IDLE_WAIT_NS: Final = 10**9
_INTERRUPTED: Final = "client has terminated"
"""What both ends say when the client was asked to end."""
# Only words given as arguments are used. The file is sent again and again, as often as it takes.
_AGAIN_AND_AGAIN: Final = 'exec >"$2"; while cat -- "$1"; do :; done'


class TcpBulkParams(TcpParams):
    """A bulk transfer."""

    duration: Annotated[DurationNs, Field(ge=10**9, le=3600 * 10**9)] = Field(
        10 * 10**9, description="how long data is sent and counts, in whole seconds"
    )
    omit: Annotated[DurationNs, Field(ge=0, le=600 * 10**9)] = Field(
        0,
        description="start-up before the duration, excluded from all figures, in "
        "whole seconds: slow start and the first filling of queues",
    )
    direction: Literal["forward", "reverse", "both"] = Field(
        "forward", description="forward: the client sends; both: both at the same time"
    )
    parallel: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = Field(
        1, description="TCP connections in each direction"
    )
    load: Literal["each", "spread"] = Field(
        "each",
        description="with several tunnels: whether each has all the connections or they are "
        "spread over them",
    )
    window: Annotated[SizeBytes, Field(ge=4096, le=256 << 20)] | None = Field(
        None,
        description="socket buffers, which limit the TCP window; none: the kernel's autotuning",
    )
    content: Literal["zero", "repeating", "random", "file"] = Field(
        "random", description="what is sent; matters for a tunnel that compresses"
    )
    file: str | None = Field(
        None,
        description="with content file: its path, relative to the directory where the command "
        "runs; it is sent again and again",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.duration % 10**9:
            raise ValueError(f"duration is {self.duration / 1e9:g} s, must be whole seconds")
        if self.omit % 10**9:
            raise ValueError(f"omit is {self.omit / 1e9:g} s, must be whole seconds")
        if (self.content == "file") != (self.file is not None):
            raise ValueError("file goes with content = 'file', and only with it")
        return self

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Ways in which data is sent."""
        return ("forward", "reverse") if self.direction == "both" else (self.direction,)


@dataclass(frozen=True)
class _Flow:
    """One pair of iperf3: one path, one direction."""

    path: TrafficPath
    direction: Direction
    port: int
    streams: int


@dataclass(frozen=True)
class _Pair:
    """A pair that runs, and where each end writes its report."""

    flow: _Flow
    client: Process
    server: Process
    client_file: PurePosixPath
    server_file: PurePosixPath


class TcpBulk(TcpWorkload):
    """A pair of iperf3 for each path and direction, all at once."""

    kind: ClassVar[str] = "tcp_bulk"
    title: ClassVar[str] = "TCP bulk transfer"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = TcpBulkParams
    metrics: ClassVar[tuple[str, ...]] = (
        "tcp_goodput_bit_s",
        "tcp_goodput_forward_bit_s",
        "tcp_goodput_reverse_bit_s",
        "tcp_goodput_slowest_bit_s",
        "tcp_retransmits_per_s",
        "tcp_rtt_p50_ns",
        "tcp_rtt_max_ns",
        "tcp_cwnd_p50_bytes",
        "tcp_efficiency_ratio",
        "tcp_buffer_delay_ratio",
    )
    params: TcpBulkParams

    def need(self) -> Need:
        """Need iperf3, and ss to see that it listens."""
        return Need(programs={"iperf3": "iperf3", "ss": "iproute2"})

    def conflict(self, paths: int) -> str | None:
        """Each of the tunnels needs a connection of its own."""
        if self.params.load == "spread" and self.params.parallel < paths:
            return (
                f"parallel is {self.params.parallel}, must be at least the {paths} tunnels "
                "over which the connections are spread"
            )
        return None

    def unmodelled(self, paths: int) -> str | None:
        """Virtual time has some congestion controls, and so many connections."""
        if (lacking := super().unmodelled(paths)) is not None:
            return lacking
        params = self.params
        count = params.parallel * len(params.directions) * (paths if params.load == "each" else 1)
        if count > MOST_MODELLED:
            return f"{count} connections are too many for a simulation: {MOST_MODELLED} at most"
        return None

    @property
    def expected_s(self) -> float:
        """Sending, and a second for the two handshakes."""
        return (self.params.omit + self.params.duration) / 1e9 + 1

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        problems: list[str] = []
        reported: list[Reported] = []
        samples: tuple[str, ...] = ()
        idle = {} if context.is_background else _idle_rtt_ns(context)
        if context.carry_bulk is not None:
            return self._without_programs(context, context.carry_bulk, idle)
        with Bench(context, self.kind) as bench:
            try:
                pairs = self._start(context, bench)
                problems += bench.follow(
                    [pair.client for pair in pairs],
                    [pair.server for pair in pairs],
                    expected_s=self.expected_s,
                    limit_s=(self.params.omit + self.params.duration) / 1e9 + _END_LIMIT_S,
                )
                problems += _ends(pairs, ended=bench.enough)
                reported = [
                    found
                    for pair in pairs
                    if (found := _read(context, pair, idle, problems, ended=bench.enough))
                ]
                samples = _keep(context, pairs)
            except LabError as error:
                problems.append(str(error))
        alive = _alive(problems, "all clients and servers finished")
        return _outcome(context, reported, alive, samples, omit_s=self.params.omit / 1e9)

    def _without_programs(
        self, context: TrialContext, carry: CarryBulk, idle: Mapping[str, float | None]
    ) -> Outcome:
        """Run one trial in virtual time, which sends what iperf3 would."""
        params = self.params
        flows = [
            BulkFlow(
                path=flow.path,
                direction=flow.direction,
                streams=flow.streams,
                seconds=(params.omit + params.duration) // 10**9,
                congestion=params.congestion,
                window_bytes=params.window,
            )
            for flow in plan_flows(params, context.paths, context.first_port)
        ]
        problems: list[str] = []
        reported: list[Reported] = []
        try:
            for flow, end in zip(flows, carry(flows), strict=True):
                name, found = flow.path.name, (end.sender, end.receiver)
                if end.sender.error:
                    problems.append(end.sender.error)
                else:
                    reported.append(Reported(name, flow.direction, *found, idle.get(name)))
        except LabError as error:
            problems.append(str(error))
        alive = _alive(problems, "all connections were opened and sent to the end")
        return _outcome(context, reported, alive, (), omit_s=params.omit / 1e9)

    def _start(self, context: TrialContext, bench: Bench) -> list[_Pair]:
        """Start all servers, wait for them, then all clients."""
        flows = plan_flows(self.params, context.paths, context.first_port)
        sources = self._sources(context, bench)
        ready = []
        for flow in flows:
            name = f"server-{flow.path.name}-{flow.direction}"
            file = bench.directory(context.server) / f"{name}.json"
            server = bench.start(
                context.server,
                [
                    *("iperf3", "-s", "-1", "-J", "-i", "1", "--logfile", str(file)),
                    *("-B", flow.path.server_listens, "-p", str(flow.port)),
                    *(sources[flow.direction] if flow.direction == "reverse" else ()),
                ],
                name=name,
            )
            ready.append((flow, server, file))
        for flow, server, _ in ready:
            bench.listening(context.server, server, flow.path.server_listens, flow.port)
        pairs = []
        for flow, server, server_file in ready:
            name = f"client-{flow.path.name}-{flow.direction}"
            file = bench.directory(context.client) / f"{name}.json"
            argv = ["iperf3", "-J", "-i", "1", "--logfile", str(file), *self._arguments(flow)]
            if flow.direction == "forward":
                argv += sources[flow.direction]
            client = bench.start(context.client, argv, name=name)
            pairs.append(_Pair(flow, client, server, file, server_file))
        return pairs

    def _arguments(self, flow: _Flow) -> list[str]:
        params = self.params
        words = [
            *("-c", flow.path.server_address, "-B", flow.path.client_address),
            *("-p", str(flow.port), "-t", str((params.omit + params.duration) // 10**9)),
            *("-P", str(flow.streams)),
            *("--connect-timeout", str(_CONNECT_LIMIT_MS)),
        ]
        if flow.direction == "reverse":
            words.append("-R")
        if params.window is not None:
            words += ["-w", str(params.window)]
        if params.congestion is not None:
            words += ["-C", params.congestion]
        if params.content == "repeating":
            words.append("--repeating-payload")
        return words

    def _sources(self, context: TrialContext, bench: Bench) -> dict[Direction, list[str]]:
        """Return the words by which each sending end gets its content."""
        if self.params.content == "zero":
            return {"forward": ["-F", "/dev/zero"], "reverse": ["-F", "/dev/zero"]}
        if self.params.file is None:
            return {"forward": [], "reverse": []}
        data = _content(Path(self.params.file))
        sources: dict[Direction, list[str]] = {}
        for direction in self.params.directions:
            host = context.client if direction == "forward" else context.server
            file, pipe = (bench.directory(host) / name for name in ("content", "pipe"))
            host.put(file, data)
            host.run(["mkfifo", "-m", "600", "--", str(pipe)])
            bench.start(
                host,
                ["sh", "-c", _AGAIN_AND_AGAIN, "content", str(file), str(pipe)],
                name="content",
                sends=False,
            )
            sources[direction] = ["-F", str(pipe)]
        return sources


def plan_flows(params: TcpBulkParams, paths: Sequence[TrafficPath], first_port: int) -> list[_Flow]:
    """Return a flow for each path and direction, with its port and number of connections."""
    flows: list[_Flow] = []
    used: Counter[str] = Counter()
    share, rest = divmod(params.parallel, len(paths))
    for number, path in enumerate(paths):
        streams = params.parallel if params.load == "each" else share + (number < rest)
        for direction in params.directions:
            # Tunnels have addresses of their own; paths beside each other on one address do not.
            port = first_port + used[path.server_address]
            used[path.server_address] += 1
            flows.append(_Flow(path, direction, port, streams))
    return flows


def _alive(problems: Sequence[str], good: str) -> Check:
    return Check("processes", ok=not problems, message="; ".join(dict.fromkeys(problems)) or good)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_CONTENT_BYTES + 1)
    except OSError as error:
        raise LabError(f"tcp_bulk.file: {path}: {error.strerror}") from error
    if not 0 < len(data) <= _LARGEST_CONTENT_BYTES:
        size = f"more than {_LARGEST_CONTENT_BYTES}" if data else "0"
        raise LabError(
            f"tcp_bulk.file: {path} has {size} bytes, 1 to {_LARGEST_CONTENT_BYTES} are allowed"
        )
    return data


def _ends(pairs: Sequence[_Pair], *, ended: bool) -> list[str]:
    """Wait for the servers, which end after their one client; return who did not end well.

    ``ended`` says that the clients were asked to end: then no status says anything.
    """
    problems = []
    for pair in pairs:
        if pair.client.poll() and not ended:
            problems.append(f"iperf3 on the client ended with status {pair.client.poll()}")
            continue
        try:
            status = pair.server.wait(_FLUSH_LIMIT_S)
        except TimeoutError:
            problems.append(f"iperf3 on the server did not end within {_FLUSH_LIMIT_S:g} s")
            continue
        if status and not ended:
            problems.append(f"iperf3 on the server ended with {status}: {words(pair.server)}")
    return problems


def _idle_rtt_ns(context: TrialContext) -> dict[str, float | None]:
    """Return the smallest of a few round trips on each path while nothing else is sent."""
    flows = plan(
        context,
        name="tcp_bulk/idle",
        gap_ns=_IDLE_GAP_NS,
        packets=_IDLE_PACKETS,
        payload_bytes=SMALLEST_PAYLOAD_BYTES,
        content={"type": "random"},
        load="each",
    )
    own = dataclasses.replace(
        context,
        sample_stem=f"{context.sample_stem}-idle",
        samples_dir=None,
        progress=lambda _progress: None,
    )
    joined = run_streams(own, flows, drain_ns=_IDLE_WAIT_NS).joined
    return {
        path.name: quantile(flow.rtt_ns, 0)
        for path, flow in zip(context.paths, joined, strict=False)
    }


def _read(
    context: TrialContext,
    pair: _Pair,
    idle: Mapping[str, float | None],
    problems: list[str],
    *,
    ended: bool,
) -> Reported | None:
    """Return both reports of a pair; what is missing or damaged is in ``problems``."""
    found = []
    # A server that still waits for a client that has gone writes its report when it is ended.
    pair.server.stop()
    for host, file in ((context.client, pair.client_file), (context.server, pair.server_file)):
        try:
            found.append(parse_report(host.get(file, limit_bytes=LARGEST_REPORT_BYTES)))
        except (LabError, ValueError) as error:
            problems.append(f"iperf3 on the {host.name}: {error}")
    errors = [e for report in found if (e := report.error) and not (ended and _INTERRUPTED in e)]
    if len(found) < 2 or errors:  # noqa: PLR2004 - two ends
        problems += errors
        return None
    client, server = found
    forward = pair.flow.direction == "forward"
    sender, receiver = (client, server) if forward else (server, client)
    if receiver.received_bytes is None or sender.sent_s is None:
        problems.append("iperf3 reported no sums at the end")
        return None
    path = pair.flow.path.name
    return Reported(path, pair.flow.direction, sender, receiver, idle.get(path))


def _keep(context: TrialContext, pairs: Sequence[_Pair]) -> tuple[str, ...]:
    """Leave both reports of each pair among the samples."""
    if context.samples_dir is None:
        return ()
    kept = []
    for pair in pairs:
        for host, file in ((context.client, pair.client_file), (context.server, pair.server_file)):
            name = f"{context.sample_stem}.iperf3-{file.name}"
            try:
                data = host.get(file, limit_bytes=LARGEST_REPORT_BYTES)
            except LabError:
                continue  # it has been reported already
            write(context.samples_dir / name, data)
            kept.append(name)
    return tuple(kept)


def _outcome(
    context: TrialContext,
    reported: Sequence[Reported],
    alive: Check,
    samples: tuple[str, ...],
    *,
    omit_s: float,
) -> Outcome:
    if not reported:
        return Outcome((), (alive,), 0, 0, 0.0, samples=samples)
    delivered = sum(received(one)[0] for one in reported)
    moved = Check(
        "data_moved",
        # That nothing arrives over a connection that stands is a figure: goodput 0.
        ok=True,
        message=f"{delivered} bytes of payload arrived"
        + "".join(f", none {t.direction} on path {t.path}" for t in reported if not received(t)[0]),
        value=float(delivered),
        unit="byte",
    )
    counted = [one.after(omit_s) for one in reported]
    by_path = [
        Measurement(path.name, figures([t for t in counted if t.path == path.name]))
        for path in context.paths
        if any(t.path == path.name for t in reported)
    ]
    return Outcome(
        (Measurement("total", figures(counted)), *by_path),
        (alive, moved),
        payload_bytes=delivered,
        payload_packets=sum(received(t)[0] // (t.sender.mss_bytes or 1448) for t in reported),
        measuring_s=max(t.sender.sent_s or 0.0 for t in reported),
        details={
            "iperf3" if context.carry_bulk is None else "tcp": reported[0].sender.version,
            "congestion": sorted({t.sender.congestion for t in reported if t.sender.congestion}),
            "mss_bytes": reported[0].sender.mss_bytes,
            "omit_s": omit_s,
            "idle_rtt_ns": {t.path: t.idle_rtt_ns for t in reported},
            "series": series(reported),
        },
        samples=samples,
    )
