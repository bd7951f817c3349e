"""UDP echo: datagrams at a fixed gap, answered by the far end; every packet is recorded."""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine import config
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, Ratio
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.echo_metrics import flow_metrics, total_metrics
from tunnelmark.workloads.quantiles import too_few
from tunnelmark.workloads.streams import content_json, plan, run_streams

SMALLEST_PAYLOAD_BYTES: Final = 25
LONGEST_NS: Final = 3600 * 10**9
_MOST_PACKETS: Final = 50_000_000
_START_AND_DRAIN_S: Final = 0.3


class UdpEchoParams(Params):
    """A stream of datagrams and their replies."""

    gap: Annotated[DurationNs, Field(ge=1000, le=60 * 10**9)] = Field(
        description="time from packet to packet on the sender's absolute schedule"
    )
    payload_bytes: Annotated[
        int, Field(ge=SMALLEST_PAYLOAD_BYTES, le=config.LARGEST_PAYLOAD_BYTES)
    ] = Field(description="UDP payload of each datagram")
    packets: Annotated[int, Field(ge=1, le=_MOST_PACKETS)] | None = Field(
        None, description="how many packets; this or duration"
    )
    duration: Annotated[DurationNs, Field(ge=10**6, le=LONGEST_NS)] | None = Field(
        None, description="how long packets are sent; this or packets"
    )
    content: Literal["zero", "random", "repeat", "compressible"] = Field(
        "random", description="what fills the payload; matters for a tunnel that compresses"
    )
    compressible_share: Ratio = Field(0.5, description="share of zeros with content compressible")
    load: Literal["each", "spread"] = Field(
        "spread",
        description="with several tunnels: whether the stream is spread over them or each "
        "carries all of it",
    )
    late: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        10**9, description="a reply later than this is a late arrival and has no round-trip delay"
    )
    drain: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        10**9,
        description="waiting time, at least that of late: a packet or reply that arrives later "
        "than this after the packet was sent is lost, whichever of the trial it is (RFC 7680)",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if (self.packets is None) == (self.duration is None):
            raise ValueError("needs either packets or duration")
        if self.packet_count > _MOST_PACKETS:
            raise ValueError(
                f"would send {self.packet_count} packets, at most {_MOST_PACKETS} are allowed"
            )
        if self.packet_count * self.gap > 24 * LONGEST_NS:
            raise ValueError(
                f"would take {self.packet_count * self.gap // 10**9} s, at most a day is allowed"
            )
        return self

    @property
    def packet_count(self) -> int:
        """Packets in total, of one stream."""
        if self.packets is not None:
            return self.packets
        return -(-(self.duration or 0) // self.gap)


class UdpEcho(Workload):
    """One reflector and one sender per trial, a flow for each path."""

    kind: ClassVar[str] = "udp_echo"
    title: ClassVar[str] = "UDP echo"
    simulated: ClassVar[bool] = True
    many_clients: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = UdpEchoParams
    metrics: ClassVar[tuple[str, ...]] = (
        "goodput_bit_s",
        "goodput_echo_bit_s",
        "sent_load_bit_s",
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "unanswered_ratio",
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

    def conflict(self, paths: int) -> str | None:
        """Each of the tunnels needs a packet of its own."""
        if self.params.load == "spread" and self.params.packet_count < paths:
            return (
                f"packets is {self.params.packet_count}, must be at least the {paths} tunnels "
                "over which they are spread"
            )
        return None

    def withheld(self, metric: str, paths: int = 1) -> str | None:
        """Return that there are too few packets for a percentile of the tail, or None."""
        count = self.params.packet_count
        tail = (99, f"packets is {count}", count)
        tails = dict.fromkeys((name for name in self.metrics if "_p99_" in name), tail)
        return too_few(metric, tails, paths=paths if self.params.load == "each" else 1)

    @property
    def expected_s(self) -> float:
        """Sending, and a round trip of a slow link."""
        return self.params.packet_count * self.params.gap / 1e9 + _START_AND_DRAIN_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        flows = plan_flows(self.params, context)
        streamed = run_streams(
            context,
            flows,
            drain_ns=self.params.drain,
            late_ns=self.params.late,
            apart_ns=self._apart_ns(len(flows)) if context.alone else None,
        )
        total = [total_metrics(streamed.joined, streamed.reported)] if streamed.joined else []
        both = zip(streamed.joined, streamed.reported, strict=True)
        return streamed.outcome(
            [path.name for path in context.paths],
            total,
            total if len(streamed.joined) == 1 else [flow_metrics(*one) for one in both],
        )

    def _apart_ns(self, paths: int) -> int | None:
        """Return the gap between packets if they are too few for a percentile of the tail."""
        if self.withheld("rtt_p99_ns", paths) is None:
            return None
        return self.params.gap // (paths if self.params.load == "each" else 1)


def plan_flows(params: UdpEchoParams, context: TrialContext) -> list[config.Flow]:
    """Return one flow for each path."""
    return plan(
        context,
        name="udp_echo",
        gap_ns=params.gap,
        packets=params.packet_count,
        payload_bytes=params.payload_bytes,
        content=content_json(params.content, params.compressible_share),
        load=params.load,
    )
