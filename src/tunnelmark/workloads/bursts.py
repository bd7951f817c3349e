"""On/off bursts: datagrams of random length to several ports, in bursts with silences between."""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine import config
from tunnelmark.engine.traffic import OnOff, UniformSize
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import ServerPorts
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.beside import together
from tunnelmark.workloads.loads import Loaded, details, too_many
from tunnelmark.workloads.streams import Streamed, run_streams, sessions, turned

_S: Final = 10**9
_START_S: Final = 0.3
_DRAIN_NS: Final = 500_000_000
Port = Annotated[int, Field(ge=1, le=65535)]
Length = Annotated[int, Field(ge=config.LEAST_PAYLOAD_BYTES, le=config.LARGEST_PAYLOAD_BYTES)]
Span = Annotated[DurationNs, Field(ge=10**6, le=3600 * _S)]


class BurstsParams(Params):
    """Bursts; the defaults are those of the classic load of 1000 packets per second."""

    packet_rate: Annotated[float, Field(gt=0, le=1e6)] = Field(
        1000.0, description="datagrams per second of all ports together while all send"
    )
    smallest_bytes: Length = Field(
        config.LEAST_PAYLOAD_BYTES,
        description="smallest UDP payload; all lengths are equally likely",
    )
    largest_bytes: Length = Field(1500, description="largest UDP payload")
    on_min: Span = Field(1 * _S, description="shortest burst; all lengths are equally likely")
    on_max: Span = Field(3 * _S, description="longest burst")
    off_min: Span = Field(1 * _S, description="shortest silence")
    off_max: Span = Field(2 * _S, description="longest silence")
    ports: Annotated[tuple[Port, ...], Field(min_length=1, max_length=16)] = Field(
        (80, 21, 110, 25, 53), description="destination ports, each with its own bursts"
    )
    direction: Literal["forward", "reverse", "both", "echo"] = Field(
        "forward", description="to the server, to the client, both, or answered"
    )
    content: Literal["zero", "random"] = Field("random", description="what fills the payload")
    duration: Annotated[DurationNs, Field(ge=10**8, le=3600 * _S)] = Field(
        30 * _S,
        description="how long it sends; as a background load it continues until the workload ends",
    )

    @model_validator(mode="after")
    def _order(self) -> Self:
        for low, high in (("smallest_bytes", "largest_bytes"), ("on_min", "on_max")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{high} is {getattr(self, high)}, must be at least {low}, {getattr(self, low)}"
                )
        if self.off_min > self.off_max:
            raise ValueError(f"off_max is {self.off_max}, must be at least off_min, {self.off_min}")
        if len(set(self.ports)) != len(self.ports):
            raise ValueError("ports has one more than once")
        return self


class Bursts(Workload):
    """A flow for each port; all ports of a path begin at a random place of their own cycle."""

    kind: ClassVar[str] = "bursts"
    title: ClassVar[str] = "On/off bursts"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = BurstsParams
    metrics: ClassVar[tuple[str, ...]] = (
        "sent_packet_s",
        "received_forward_packet_s",
        "received_reverse_packet_s",
        "goodput_bit_s",
        "goodput_reverse_bit_s",
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "owd_forward_p50_ns",
        "owd_forward_p99_ns",
        "owd_reverse_p50_ns",
        "owd_reverse_p99_ns",
    )
    params: BurstsParams

    @property
    def server_begins(self) -> bool:
        """Whether packets go in the reverse direction that are no replies."""
        return self.params.direction in {"reverse", "both"}

    @property
    def line_ports(self) -> tuple[ServerPorts, ...]:
        """Return those of the bursts."""
        return tuple(ServerPorts("udp", port) for port in self.params.ports)

    @property
    def expected_s(self) -> float:
        """The bursts, and the wait for what is under way."""
        return (self.params.duration + _DRAIN_NS) / 1e9 + _START_S

    def conflict(self, paths: int) -> str | None:
        """Return why bursts would not have the rate that is asked for: one packet makes none.

        Or that they would be too many packets.
        """
        params, gap_ns = self.params, self._gap_ns(paths)
        if reason := too_many(params.packet_rate * params.duration / 1e9):
            return reason
        if params.on_min >= gap_ns:
            return None
        flows = paths * len(params.ports)
        return (
            f"on_min is {params.on_min / 1e6:g} ms, less than the {gap_ns / 1e6:g} ms from one "
            f"datagram of a port to the next ({params.packet_rate:g} a second over {flows} ports): "
            "such a burst has one datagram, and its rate is different"
        )

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        way = self.params.direction
        ways = {"both": ("forward", "reverse"), "echo": ("forward",)}.get(way, (way,))
        contexts = [turned(context) if one == "reverse" else context for one in ways]

        def one(place: int, context: TrialContext) -> Streamed:
            return run_streams(
                context,
                self._flows(context, ways[place]),
                drain_ns=_DRAIN_NS,
                answer=way == "echo",
            )

        streams = together(contexts, one, failed=lambda streamed: not streamed.finished)
        found = dict(zip(ways, streams, strict=True))
        loaded = Loaded(found.get("forward"), found.get("reverse"), self.params.packet_rate)
        measurements: tuple[Measurement, ...] = ()
        if loaded.recorded:
            wanted = set(self.metrics)
            figures = {key: value for key, value in loaded.metrics().items() if key in wanted}
            measurements = (Measurement("total", figures),)
        return Outcome(
            measurements,
            loaded.checks,
            sum(one.delivered_bytes for one in streams),
            sum(one.delivered_packets for one in streams),
            max(one.measuring_s for one in streams),
            details=details(loaded),
            samples=tuple(name for one in streams for name in one.samples),
        )

    def _flows(self, context: TrialContext, way: str) -> list[config.Flow]:
        params = self.params
        pairs = [(path, port) for path in context.paths for port in params.ports]
        gap_ns = self._gap_ns(len(context.paths))
        return [
            config.Flow(
                session=session,
                target=config.address(path.server_address, port),
                listen=config.address(path.server_listens, port),
                source=config.address(path.client_address, 0),
                gap_ns=gap_ns,
                # Not all in step, yet all within the first burst.
                start_offset_ns=gap_ns * number // len(pairs),
                packets=None,
                duration_ns=params.duration,
                payload_bytes=params.largest_bytes,
                content={"type": params.content},
                schedule=OnOff(
                    gap_ns=gap_ns,
                    on_ns=(params.on_min, params.on_max),
                    off_ns=(params.off_min, params.off_max),
                ),
                size=UniformSize(params.smallest_bytes, params.largest_bytes),
            )
            for number, ((path, port), session) in enumerate(
                zip(pairs, sessions(context.seed, f"bursts/{way}", len(pairs)), strict=True)
            )
        ]

    def _gap_ns(self, paths: int) -> int:
        """Return the time between two datagrams of one port of one path."""
        return max(1, round(paths * len(self.params.ports) * 1e9 / self.params.packet_rate))
