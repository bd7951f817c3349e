"""Delay of small packets while the study's background runs, against the idle link."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from tunnelmark.model.host import Need
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.trial import Measurement
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.phases import added, echo, joined
from tunnelmark.workloads.udp_echo import SMALLEST_PAYLOAD_BYTES

_S: Final = 10**9
_START_S: Final = 1.0
_COMPARED: Final = ("rtt_p50_ns", "rtt_p99_ns", "owd_forward_p50_ns", "owd_reverse_p50_ns")
_ADDED: Final = {
    "load_added_rtt_ns": "rtt_p50_ns",
    "load_added_forward_ns": "owd_forward_p50_ns",
    "load_added_reverse_ns": "owd_reverse_p50_ns",
}


class LatencyUnderLoadParams(Params):
    """An echo of small packets, first alone, then under load."""

    gap: Annotated[DurationNs, Field(ge=10**6, le=10 * _S)] = Field(
        10_000_000,
        description="time from packet to packet; a 99th percentile needs 300 packets of each state",
    )
    payload_bytes: Annotated[int, Field(ge=SMALLEST_PAYLOAD_BYTES, le=1400)] = Field(
        64, description="UDP payload of each packet"
    )
    idle: Annotated[DurationNs, Field(ge=10**8, le=600 * _S)] = Field(
        3 * _S, description="how long the idle link is measured first"
    )
    settle: Annotated[DurationNs, Field(ge=0, le=600 * _S)] = Field(
        2 * _S, description="how long the load runs before the measurement under load"
    )
    loaded: Annotated[DurationNs, Field(ge=10**8, le=3600 * _S)] = Field(
        10 * _S, description="how long the delay is measured under load"
    )


class LatencyUnderLoad(Workload):
    """Two echoes: one alone, one with the background beside it."""

    kind: ClassVar[str] = "latency_under_load"
    title: ClassVar[str] = "Delay under load"
    params_type: ClassVar[type[Params]] = LatencyUnderLoadParams
    may_be_background: ClassVar[bool] = False
    simulated: ClassVar[bool] = True
    wants_background: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = (
        *_ADDED,
        *(f"{state}_{name}" for state in ("idle", "loaded") for name in _COMPARED),
        "loss_forward_ratio",
        "loss_reverse_ratio",
        "background_bit_s",
        "background_packet_s",
    )
    params: LatencyUnderLoadParams

    def need(self) -> Need:
        """Return nothing: the engine is all the echo needs."""
        return Need()

    @property
    def expected_s(self) -> float:
        """Both echoes, and the load's beginning."""
        params = self.params
        return (params.idle + params.settle + params.loaded) / 1e9 + 2 * _START_S

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        if context.beside is None:
            message = "latency_under_load needs a [[background]]"
            return Outcome((), (Check("workload", ok=False, message=message),), 0, 0, 0.0)
        idle = self._echo(context, "idle", self.params.idle)
        if not idle.measurements:
            return idle
        loaded = context.beside(self._under_load)
        return _both(idle, loaded)

    def _under_load(self, context: TrialContext) -> Outcome:
        if context.settle is not None:
            context.settle(self.params.settle)
        elif self.params.settle:
            first = self._echo(context, "settle", self.params.settle)
            if not first.measurements:
                return first
        return self._echo(context, "loaded", self.params.loaded)

    def _echo(self, context: TrialContext, phase: str, duration_ns: int) -> Outcome:
        return echo(
            context,
            phase,
            gap_ns=self.params.gap,
            payload_bytes=self.params.payload_bytes,
            duration_ns=duration_ns,
            # What is sent before the load counts proves nothing.
            keep=phase != "settle",
        )


def _both(idle: Outcome, loaded: Outcome) -> Outcome:
    """Return one outcome of two echoes; the loaded one's counters stand for the trial."""
    before = {m.path: m.metrics for m in idle.measurements}
    measurements = []
    for measurement in loaded.measurements:
        alone, under = before.get(measurement.path, {}), measurement.metrics
        figures: dict[str, float | None] = {
            name: under.get(name)
            for name in (
                *("loss_forward_ratio", "loss_reverse_ratio"),
                *("background_bit_s", "background_packet_s"),
            )
            if name in under
        }
        figures |= {f"idle_{name}": alone.get(name) for name in _COMPARED}
        figures |= {f"loaded_{name}": under.get(name) for name in _COMPARED}
        figures |= {name: added(alone, under, of) for name, of in _ADDED.items()}
        measurements.append(Measurement(measurement.path, figures))
    return joined(idle, loaded, name="idle", measurements=measurements)
