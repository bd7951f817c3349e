"""Round-trip delay at a packet rate, given directly or by throughput.

Throughput and packet rate of a stream are one figure: payload [bit/s] = 8 x size [byte] x rate.
"""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.loads import RateParams, run_load
from tunnelmark.workloads.udp_echo import UdpEcho

_START_S: Final = 0.3


class LatencyAtRateParams(RateParams):
    """An echo at a packet rate."""

    late: Annotated[DurationNs, Field(ge=10**6, le=60 * 10**9)] = Field(
        2 * 10**9,
        description="a reply later than this is a late arrival and has no round-trip delay",
    )


class LatencyAtRate(Workload):
    """One echo of constant rate."""

    kind: ClassVar[str] = "latency_at_rate"
    title: ClassVar[str] = "Delay at a packet rate"
    simulated: ClassVar[bool] = True
    many_clients: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = LatencyAtRateParams
    metrics: ClassVar[tuple[str, ...]] = (
        "offered_packet_s",
        *(
            name
            for name in UdpEcho.metrics
            if name not in ("goodput_echo_bit_s", "sent_load_bit_s")
        ),
    )
    params: LatencyAtRateParams

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:
        """Return that the link has no rate to take a share of, or None."""
        return self.params.unfit(link, mtu_bytes)

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """The one size of all datagrams."""
        return (self.params.payload,)

    @property
    def expected_s(self) -> float:
        """Sending, and a round trip of a slow link."""
        return self.params.duration / 1e9 + _START_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        params = self.params
        rate = params.rate(context.link, context.link_mtu_bytes, context.paths[0].ip)
        packets = max(len(context.paths), -int(-rate * params.duration // 10**9))
        loaded = run_load(
            context, params, way="echo", packet_rate=rate, packets=packets, late_ns=params.late
        )
        (echo,) = loaded.streams
        wanted = set(self.metrics)

        def chosen(number: int | None = None) -> dict[str, float | None]:
            return {k: v for k, v in loaded.metrics(number).items() if k in wanted}

        if not echo.joined:
            return echo.outcome((), (), ())
        return echo.outcome(
            [path.name for path in context.paths],
            (chosen(),),
            [chosen(number) for number in range(len(context.paths))],
        )
