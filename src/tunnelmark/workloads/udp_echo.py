"""UDP echo: datagrams at a fixed gap, answered by the far end; every packet is recorded."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine import config, records
from tunnelmark.engine.summary import ReflectSummary, SendSummary
from tunnelmark.model.host import Need
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, Ratio
from tunnelmark.model.trial import Measurement
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.echo_evidence import evidence
from tunnelmark.workloads.echo_exchange import Exchange, Exchanged
from tunnelmark.workloads.echo_metrics import flow_metrics, total_metrics

PORT: Final = 7700
"""UDP port of the reflector on the server."""
SMALLEST_PAYLOAD_BYTES: Final = 25
_HOUR_NS: Final = 3600 * 10**9
_MOST_PACKETS: Final = 50_000_000
_PATTERN: Final = b"tunnelmark "
_START_AND_DRAIN_S: Final = 0.3


class UdpEchoParams(Params):
    """A stream of datagrams and their answers."""

    gap: Annotated[DurationNs, Field(ge=1000, le=60 * 10**9)] = Field(
        description="time from packet to packet on the sender's absolute schedule"
    )
    payload_bytes: Annotated[
        int, Field(ge=SMALLEST_PAYLOAD_BYTES, le=config.LARGEST_PAYLOAD_BYTES)
    ] = Field(description="UDP payload of each datagram")
    packets: Annotated[int, Field(ge=1, le=_MOST_PACKETS)] | None = Field(
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
        if self.packet_count > _MOST_PACKETS:
            raise ValueError(
                f"would send {self.packet_count} packets, at most {_MOST_PACKETS} are allowed"
            )
        if self.packet_count * self.gap > 24 * _HOUR_NS:
            raise ValueError(
                f"would take {self.packet_count * self.gap // 10**9} s, at most a day is allowed"
            )
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
        return self.params.packet_count * self.params.gap / 1e9 + _START_AND_DRAIN_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        flows = plan_flows(self.params, context)
        with Exchange(
            context,
            flows,
            port=PORT,
            drain_ns=self.params.drain,
            late_ns=self.params.late,
        ) as exchange:
            found = exchange.run()
        alive = Check(
            "processes",
            ok=not found.problems,
            message="; ".join(found.problems) or "sender and reflector ran to their end",
        )
        return self._outcome(context, flows, found, alive)

    def _outcome(
        self,
        context: TrialContext,
        flows: Sequence[config.Flow],
        found: Exchanged,
        alive: Check,
    ) -> Outcome:
        sent, send, reflect = found.sent, found.send, found.reflect
        if sent is None or send is None or reflect is None:
            return Outcome((), (alive,), 0, 0, 0.0)
        told = {flow.flow: flow for flow in sent.flows}
        if set(told) != {flow.session.flow for flow in flows}:
            message = f"the sender tells of flows {sorted(told)}, {len(flows)} were asked for"
            return Outcome((), (alive, Check("flows", ok=False, message=message)), 0, 0, 0.0)
        joined = [records.join(send, reflect, flow.session.flow) for flow in flows]
        counted = [told[flow.session.flow] for flow in flows]
        by_path = [
            Measurement(path.name, flow_metrics(flow, counts))
            for path, flow, counts in zip(context.paths, joined, counted, strict=True)
        ]
        arrived = sum(int(flow.arrived.sum()) for flow in joined)
        returned = sum(int(flow.returned.sum()) for flow in joined)
        return Outcome(
            (Measurement("total", total_metrics(joined, counted)), *by_path),
            (
                alive,
                *evidence(
                    sent,
                    found.reflected,
                    joined,
                    late_limit_ns=max(
                        int(min(flow.gap_ns for flow in flows) * context.lateness_gap_ratio),
                        context.lateness_floor_ns,
                    ),
                ),
            ),
            (arrived + returned) * self.params.payload_bytes,
            arrived + returned,
            _span_s(joined, self.params.gap),
            details=_details(sent, found.reflected),
            samples=found.samples,
        )


def plan_flows(params: UdpEchoParams, context: TrialContext) -> list[config.Flow]:
    """Return one flow for each path.

    Spread: packet k of the stream belongs to path k modulo n, so the paths take turns. Each: every
    path has the whole stream, and they start one after the other within a gap.
    """
    paths = context.paths
    count = len(paths)
    spread = params.load == "spread"
    stream = random.Random(f"{context.seed}/udp_echo/sessions")  # noqa: S311 - keys of a lab
    # Distinct by construction: the reflector tells flows apart by their session.
    sessions = stream.sample(range(1 << 32), count)
    flows = []
    for number, path in enumerate(paths):
        share, rest = divmod(params.packet_count, count)
        flows.append(
            config.Flow(
                session=config.Session(number, sessions[number], stream.randbytes(16).hex()),
                target=config.address(path.server_address, PORT),
                source=config.address(path.client_address, 0),
                interface=None,
                gap_ns=params.gap * count if spread else params.gap,
                start_offset_ns=params.gap * number if spread else params.gap * number // count,
                packets=share + (number < rest) if spread else params.packet_count,
                duration_ns=None,
                payload_bytes=params.payload_bytes,
                content=_content(params),
            )
        )
    return flows


def _content(params: UdpEchoParams) -> dict[str, object]:
    if params.content == "repeat":
        return {"type": "repeat", "pattern": _PATTERN.hex()}
    if params.content == "compressible":
        return {"type": "compressible", "ratio": params.compressible_share}
    return {"type": params.content}


def _span_s(joined: Sequence[records.Flow], gap_ns: int) -> float:
    """Return how long traffic was offered: the last packet has its gap too."""
    spans = [flow.sent_ns for flow in joined if len(flow.sent_ns)]
    if not spans:
        return 0.0
    first = min(int(span.min()) for span in spans)
    last = max(int(span.max()) for span in spans)
    return (last - first + gap_ns) / 1e9


def _details(sent: SendSummary, reflected: ReflectSummary | None) -> dict[str, object]:
    return {
        "send": dataclasses.asdict(sent),
        "reflect": None if reflected is None else dataclasses.asdict(reflected),
    }
