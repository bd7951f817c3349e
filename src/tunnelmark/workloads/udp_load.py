"""UDP load: datagrams at a constant rate, one way, both ways or echoed; loss by direction.

Steps of the load are written as a list (``load = ["10 %", "20 %"]``): each is a point of its own,
repeated until its figures are precise enough.
"""

from typing import ClassVar, Final

from pydantic import Field

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.params import Params
from tunnelmark.model.trial import Measurement
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.loads import RateParams, Way, details, run_load

_START_S: Final = 0.3


class UdpLoadParams(RateParams):
    """A load of constant rate."""

    direction: Way = Field(
        "forward",
        description="to the server, to the client, both at once, or there and back as an echo",
    )


class UdpLoad(Workload):
    """A sender and a counting receiver for each direction."""

    kind: ClassVar[str] = "udp_load"
    title: ClassVar[str] = "UDP load"
    simulated: ClassVar[bool] = True
    many_clients: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = UdpLoadParams
    metrics: ClassVar[tuple[str, ...]] = (
        "offered_packet_s",
        "sent_packet_s",
        "received_forward_packet_s",
        "received_reverse_packet_s",
        "goodput_bit_s",
        "goodput_reverse_bit_s",
        "sent_load_bit_s",
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "owd_forward_p50_ns",
        "owd_forward_p99_ns",
        "owd_reverse_p50_ns",
        "owd_reverse_p99_ns",
        "rtt_p50_ns",
        "rtt_p99_ns",
        "reordered_ratio",
        "receiver_overrun_ratio",
    )
    params: UdpLoadParams

    @property
    def server_begins(self) -> bool:
        """Whether packets go in the reverse direction that are no replies."""
        return self.params.direction in {"reverse", "both"}

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:
        """Return that the link has no rate to take a share of, or None."""
        return self.params.unfit(link, mtu_bytes)

    @property
    def payload_sizes(self) -> tuple[int, ...]:
        """The one size of all datagrams."""
        return (self.params.payload,)

    @property
    def expected_s(self) -> float:
        """Sending, and the wait for what is under way."""
        return (self.params.duration + self.params.drain) / 1e9 + _START_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        params = self.params
        rate = params.rate(context.link, context.link_mtu_bytes, context.paths[0].ip)
        packets = max(len(context.paths), -int(-rate * params.duration // 10**9))
        loaded = run_load(context, params, way=params.direction, packet_rate=rate, packets=packets)
        measurements: tuple[Measurement, ...] = ()
        if loaded.recorded:
            wanted = set(self.metrics)
            figures = [loaded.metrics(), *map(loaded.metrics, range(len(context.paths)))]
            names = ["total", *(path.name for path in context.paths)]
            measurements = tuple(
                Measurement(name, {key: value for key, value in one.items() if key in wanted})
                for name, one in zip(names, figures, strict=True)
            )
        return Outcome(
            measurements,
            loaded.checks,
            sum(one.delivered_bytes for one in loaded.streams),
            sum(one.delivered_packets for one in loaded.streams),
            max(one.measuring_s for one in loaded.streams),
            details={"payload_bytes": params.payload, **details(loaded)},
            samples=tuple(name for one in loaded.streams for name in one.samples),
        )
