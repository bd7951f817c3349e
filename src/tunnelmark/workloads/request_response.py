"""Transactions: a request, an answer, the next request; over UDP, TCP, or a connection for each."""

import contextlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine import config, events, transactions
from tunnelmark.engine.summary import Histogram
from tunnelmark.engine.transactions import AskedFlow, AskSummary, Message
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, SizeBytes
from tunnelmark.model.trial import Measurement, Progress
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.congestion import TcpParams, TcpWorkload
from tunnelmark.workloads.exchanges import CarryClients, Client, Exchange, Requester, Stage
from tunnelmark.workloads.programs import Bench
from tunnelmark.workloads.quantiles import needed
from tunnelmark.workloads.web_server import ports

REALTIME_PRIORITY: Final = 10
_READY_LIMIT_S: Final = 20.0
_END_LIMIT_S: Final = 30.0
_LOOK_S: Final = 0.25
_STOP_LIMIT_S: Final = 15.0
_DEATH_LIMIT_S: Final = 0.5


class RequestResponseParams(TcpParams):
    """Transactions one after the other."""

    transport: Literal["udp", "tcp", "connect"] = Field(
        "tcp",
        description="udp, tcp: one connection for all transactions; connect: a TCP connection for "
        "each, which the server closes",
    )
    outstanding: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="simultaneous transactions on each path, each on its own socket"
    )
    duration: Annotated[DurationNs, Field(ge=10**8, le=3600 * 10**9)] = Field(
        10 * 10**9, description="how long new transactions start"
    )
    request_bytes: Annotated[
        SizeBytes, Field(ge=transactions.HEADER_BYTES, le=transactions.LARGEST_MESSAGE_BYTES)
    ] = Field(64, description="payload of a request")
    response_bytes: Annotated[
        SizeBytes, Field(ge=transactions.HEADER_BYTES, le=transactions.LARGEST_MESSAGE_BYTES)
    ] = Field(64, description="payload of a response")
    timeout: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        5 * 10**9,
        description="how long to wait for a response; over UDP it then counts as lost, over TCP "
        "the trial fails",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.transport == "udp" and self.congestion is not None:
            raise ValueError("congestion goes with transport tcp or connect")
        most = transactions.LARGEST_DATAGRAM_BYTES
        largest = max(self.request_bytes, self.response_bytes)
        if self.transport == "udp" and largest > most:
            raise ValueError(f"a message has {largest} bytes, a datagram carries at most {most}")
        return self


class RequestResponse(TcpWorkload):
    """The engine's ``ask`` and ``answer``; all paths at once."""

    kind: ClassVar[str] = "request_response"
    title: ClassVar[str] = "Request and response"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = RequestResponseParams
    metrics: ClassVar[tuple[str, ...]] = (
        "rr_transactions_per_s",
        "rr_latency_min_ns",
        "rr_latency_p50_ns",
        "rr_latency_p90_ns",
        "rr_latency_p99_ns",
        "rr_latency_max_ns",
        "rr_lost_ratio",
    )
    params: RequestResponseParams

    @property
    def over_tcp(self) -> bool:
        """Not over UDP."""
        return self.params.transport != "udp"

    def need(self) -> Need:
        """Need nothing beside the engine."""
        return Need()

    def conflict(self, paths: int) -> str | None:
        """Not more sockets than the engine has threads for."""
        sockets = paths * self.params.outstanding
        if sockets > transactions.MOST_SOCKETS:
            return (
                f"outstanding is {self.params.outstanding}, with {paths} tunnels {sockets} at a "
                f"time, at most {transactions.MOST_SOCKETS}"
            )
        return None

    def unmodelled(self, paths: int) -> str | None:
        """Over TCP what virtual time has of that; over UDP everything."""
        return super().unmodelled(paths) if self.over_tcp else None

    @property
    def content(self) -> str:
        """Messages are zeros behind their headers."""
        return "zero"

    @property
    def expected_s(self) -> float:
        """Asking, and a moment for both ends."""
        return self.params.duration / 1e9 + 0.5

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        problems: list[str] = []
        summary: AskSummary | None = None
        rejected = 0
        if context.carry_clients is not None:
            return self._without_programs(context, context.carry_clients)
        with Bench(context, self.kind) as bench:
            try:
                server, client = self._start(context, bench)
                summary = self._follow(context, server, client, problems)
                server.stop(_STOP_LIMIT_S)
                last = events.wait_for(server, "summary", limit_s=_END_LIMIT_S)
                rejected = int(last.get("rejected") or 0)
            except LabError as error:
                problems.append(str(error))
        checks = [
            _alive(problems),
            Check(
                "strangers",
                ok=rejected == 0,
                message=f"{rejected} messages were not requests of this trial",
                value=float(rejected),
                limit=0.0,
            ),
        ]
        return self._outcome(context, summary, checks)

    def _without_programs(self, context: TrialContext, carry: CarryClients) -> Outcome:
        """Run one trial in virtual time: what ``ask`` and ``answer`` send, and take no time for."""
        problems: list[str] = []
        summary: AskSummary | None = None
        try:
            ends = carry(
                self._clients(context.paths) if self.over_tcp else self._requesters(context.paths)
            )
        except LabError as error:
            problems.append(str(error))
        else:
            problems += [
                f"an answer on path {path.name} did not come in time"
                for path, end in zip(context.paths, ends.clients, strict=self.over_tcp)
                if end.gave_up
            ]
            summary = None if problems else ends.asked
        return self._outcome(context, summary, [_alive(problems)])

    def _requesters(self, paths: Sequence[TrafficPath]) -> list[Requester]:
        params = self.params
        return [
            Requester(
                path=path,
                request_bytes=params.request_bytes,
                response_bytes=params.response_bytes,
                lasts_ns=params.duration,
                timeout_ns=params.timeout,
                count=params.outstanding,
            )
            for path in paths
        ]

    def _clients(self, paths: Sequence[TrafficPath]) -> list[Client]:
        params = self.params
        fresh = params.transport == "connect"
        stage = Stage(
            (Exchange((params.request_bytes,), (params.response_bytes,)),),
            fresh=fresh,
            awaits_close=fresh,
            opening_counts=fresh,
            lasts_ns=params.duration,
        )
        return [
            Client(
                path=path,
                stages=(stage,),
                congestion=params.congestion,
                patience_ns=params.timeout,
                limit_ns=params.duration + params.timeout,
                count=params.outstanding,
            )
            for path in paths
        ]

    def _start(self, context: TrialContext, bench: Bench) -> tuple[Process, Process]:
        params = self.params
        stream = random.Random(f"{context.seed}/{self.kind}")  # noqa: S311 - a number in a lab
        message = Message(
            params.transport, stream.getrandbits(63), params.request_bytes, params.response_bytes
        )
        numbers = ports(context.paths, context.first_port)
        pairs = list(zip(context.paths, numbers, strict=True))
        answering = transactions.answer_config(
            message,
            [config.address(path.server_listens, port) for path, port in pairs],
            realtime_priority=REALTIME_PRIORITY,
            parent_pid=context.owner_pid,
        )
        asking = transactions.ask_config(
            message,
            [
                (config.address(path.server_address, port), config.address(path.client_address, 0))
                for path, port in pairs
            ],
            outstanding=params.outstanding,
            duration_ns=params.duration,
            timeout_ns=params.timeout,
            realtime_priority=REALTIME_PRIORITY,
            parent_pid=context.owner_pid,
        )
        server = bench.start(
            context.server,
            [context.engine, "answer", "-"],
            name="server",
            stdin=json.dumps(answering).encode(),
            lines=True,
        )
        events.wait_for(server, "ready", limit_s=_READY_LIMIT_S)
        client = bench.start(
            context.client,
            [context.engine, "ask", "-"],
            name="client",
            stdin=json.dumps(asking).encode(),
            lines=True,
        )
        return server, client

    def _follow(
        self, context: TrialContext, server: Process, client: Process, problems: list[str]
    ) -> AskSummary | None:
        """Read the client's events to its summary; a server that dies ends it early."""
        limit_s = (self.params.duration + self.params.timeout) / 1e9 * 1.5 + _END_LIMIT_S
        waited_s, ending = 0.0, False
        context.progress(Progress(0.0, {}))
        while True:
            try:
                event = _event(client, server)
            except TimeoutError:
                waited_s += _LOOK_S
            else:
                if event["event"] == "summary":
                    return transactions.parse_ask_summary(event)
                context.progress(_progress(event))
            if ending:
                if waited_s > _END_LIMIT_S:
                    raise LabError(f"the client (ask) did not end within {_END_LIMIT_S:g} s")
                continue
            found = _reasons(context, server, waited_s, limit_s)
            if found or context.enough():
                problems += found
                # In order, so that it reports what it has.
                client.stop(_STOP_LIMIT_S)
                ending, waited_s = True, 0.0

    def _outcome(
        self, context: TrialContext, summary: AskSummary | None, checks: list[Check]
    ) -> Outcome:
        if summary is None:
            return Outcome((), tuple(checks), 0, 0, 0.0)
        if len(summary.flows) != len(context.paths):
            message = f"ask reports {len(summary.flows)} flows, not {len(context.paths)}"
            checks.append(Check("flows", ok=False, message=message))
            return Outcome((), tuple(checks), 0, 0, 0.0)
        answered = sum(flow.answered for flow in summary.flows)
        silent = [
            f"none of {flow.begun} requests on path {path.name} was answered: refused, or lost"
            for path, flow in zip(context.paths, summary.flows, strict=True)
            if not flow.answered
        ]
        checks.append(
            Check(
                "answers",
                # Over UDP that is how a broken path looks, and a figure: all are lost.
                ok=not silent or self.params.transport == "udp",
                message="; ".join(silent) or f"{answered} requests were answered",
            )
        )
        span_s = summary.span_ns / 1e9
        return Outcome(
            (
                Measurement("total", figures(summary.flows, summary.latency_ns, span_s)),
                *(
                    Measurement(path.name, figures([flow], flow.latency_ns, span_s))
                    for path, flow in zip(context.paths, summary.flows, strict=True)
                ),
            ),
            tuple(checks),
            payload_bytes=answered * (self.params.request_bytes + self.params.response_bytes),
            payload_packets=2 * answered,
            measuring_s=span_s,
            details={
                "flows": [
                    {"path": path.name, "late": flow.late, **_quantiles(flow.latency_ns)}
                    for path, flow in zip(context.paths, summary.flows, strict=True)
                ]
            },
        )


def _alive(problems: Sequence[str]) -> Check:
    words = "; ".join(dict.fromkeys(problems)) or "both ends finished"
    return Check("processes", ok=not problems, message=words)


def figures(
    flows: Sequence[AskedFlow], latency: Histogram | None, span_s: float
) -> dict[str, float | None]:
    """Return the metrics of some paths together; ``latency`` is of all their transactions."""
    begun = sum(flow.begun for flow in flows)

    def tail(percent: int) -> float | None:
        if latency is None or latency.count < needed(percent):
            return None
        return float(getattr(latency, f"p{percent}"))

    return {
        "rr_transactions_per_s": sum(f.answered for f in flows) / span_s if span_s > 0 else None,
        "rr_latency_min_ns": None if latency is None else float(latency.min),
        "rr_latency_p50_ns": None if latency is None else float(latency.p50),
        "rr_latency_p90_ns": tail(90),
        "rr_latency_p99_ns": tail(99),
        "rr_latency_max_ns": None if latency is None else float(latency.max),
        "rr_lost_ratio": sum(flow.lost for flow in flows) / begun if begun else None,
    }


def _quantiles(latency: Histogram | None) -> dict[str, object]:
    return {} if latency is None else {"latency_ns": vars(latency)}


def _event(client: Process, server: Process) -> events.Event:
    """Return the client's next event; ``TimeoutError`` if there is none for a moment."""
    line = client.read_line(_LOOK_S)
    event = None if line is None else events.parse_event(line)
    if event is not None and event["event"] != "error":
        return event
    # A server that has just died is why: its death is seen a moment after its sockets close.
    with contextlib.suppress(TimeoutError):
        server.wait(_DEATH_LIMIT_S)
    words = event.get("message") if event else client.log_tail(1) or f"status {client.poll()}"
    raise LabError("; ".join([*_death(server), f"the client (ask) failed: {words}"]))


def _reasons(context: TrialContext, server: Process, waited_s: float, limit_s: float) -> list[str]:
    """Return why the trial must end now."""
    found = _death(server)
    if context.cancelled() and not context.enough():
        found.append("the trial was ended early")
    elif waited_s > limit_s:
        found.append(f"not done after {limit_s:.0f} s, the limit for these parameters")
    return found


def _death(server: Process) -> list[str]:
    if (status := server.poll()) is None:
        return []
    return [f"the server (answer) died with status {status}: {server.log_tail(1) or 'no output'}"]


def _progress(event: Mapping[str, Any]) -> Progress:
    reported = event.get("answered")
    counts = [n for n in reported if isinstance(n, int)] if isinstance(reported, list) else []
    return Progress(0.5, {"transactions": float(sum(counts))})
