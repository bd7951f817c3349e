"""What a study asks of all its trials: precision, limits of validity, probes, topology."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tunnelmark.model.metrics import METRICS
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import CoreShare, DurationNs, Ratio, SizeBytes
from tunnelmark.model.topology import Router


class Precision(Params):
    """When a point has been repeated often enough."""

    metric: str = Field("goodput_bit_s", description="whose interval decides when to stop")
    metrics: Mapping[str, str] = Field(
        {}, description="the same by kind of workload, where a study has several"
    )
    of: Literal["difference", "figure"] = Field(
        "difference",
        description="what the interval is for: the paired difference from no tunnel, or each "
        "point's own figure, including the baseline's",
    )
    relative_half_width: Annotated[Ratio, Field(gt=0)] = Field(
        0.05,
        description="half of the interval over the estimate; for a difference, over the ratio for "
        "rates and times, otherwise over the figure",
    )
    confidence: Annotated[Ratio, Field(ge=0.5, le=0.999)] = Field(
        0.95, description="confidence level of the interval"
    )
    min_repeats: int = Field(3, ge=1, le=1000, description="valid repeats that each point gets")
    max_repeats: int = Field(
        10, ge=1, le=1000, description="repeats after which a point ends, precise or not"
    )
    bring_ups: int = Field(
        2,
        ge=1,
        le=1000,
        description="starts of a tunnel over which min_repeats is spread, so that the interval "
        "covers the variation between starts; further repeats continue in the same way, except "
        "that 1 means one start for all; at most min_repeats",
    )
    max_invalid: int = Field(
        3,
        ge=0,
        le=100,
        description="invalid attempts that a repeat may have; one more gives the point up",
    )

    @field_validator("metric")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in METRICS:
            near = difflib.get_close_matches(value, METRICS, 1)
            hint = f", did you mean {near[0]}?" if near else f"; known: {', '.join(METRICS)}"
            raise ValueError(f"is not a metric{hint}")
        return value

    @field_validator("metrics")
    @classmethod
    def _all_known(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value.values():
            cls._known(name)
        return value

    def metric_of(self, workload: str) -> str:
        """Return the metric that decides for a kind of workload."""
        return self.metrics.get(workload, self.metric)

    def bring_up_of(self, repeat: int) -> int:
        """Return in which bring-up (1-based) of its tunnel a repeat is measured."""
        if self.bring_ups == 1:
            return 1
        return (repeat - 1) * min(self.bring_ups, self.min_repeats) // self.min_repeats + 1

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.max_repeats < self.min_repeats:
            raise ValueError(
                f"max_repeats is {self.max_repeats}, must be at least min_repeats, "
                f"{self.min_repeats}"
            )
        return self


class Probes(Params):
    """What a study asks of the instrument beside its workloads; see docs/probes.md."""

    capture_packets: int = Field(
        0,
        ge=0,
        le=50_000,
        description="packets to capture at each end of the link in every trial, for the "
        "delay by place and the packet sizes; 0: no capture, since it costs CPU",
    )
    spin: bool = Field(
        default=True,
        description="sender and link emulator stay awake shortly before a packet is due, for at "
        "most a quarter of the time; false: they sleep until then, so that packets are as late as "
        "the kernel wakes (some 50 microseconds), and leave a computer of one or two cores to "
        "what is measured",
    )


class Limits(Params):
    """Limits of validity that a study may set; docs/validity.md gives the reasons."""

    sender_lateness: Annotated[DurationNs, Field(ge=0)] = Field(
        1_000_000,
        description="99th percentile of how late packets leave that is always accepted: a "
        "millisecond is too little to change a verdict",
    )
    sender_lateness_gap: Ratio = Field(
        0.1,
        description="the same as a share of the gap, for slow streams: a tenth of the gap "
        "leaves order and load as requested",
    )
    emulated_lateness: Annotated[DurationNs, Field(ge=0)] = Field(
        5_000_000,
        description="the same for sender and link on an emulated CPU: its timers "
        "are late by 1 to 4 ms, and its delays are compared only with others of its kind",
    )
    steal: Ratio = Field(0.05, description="largest share of time taken by the hypervisor")
    starvation: CoreShare = Field(
        0.1,
        description="largest share of time in which the tunnel's programs waited for a core that "
        "other programs used: beyond it their load would be measured",
    )
    measuring_cpu: CoreShare = Field(
        0.9, description="largest busy share of one core by a measuring program"
    )
    link_lateness: DurationNs = Field(
        2_000_000, description="99th percentile of how late the link emulator may forward packets"
    )


class TopologyParams(Params):
    """What stands between client and server beside the link, and limits of their kernels."""

    router: Router = Field(
        "none",
        description="between the link and the server: a router, or a router with NAT, behind "
        "which the client is",
    )
    reassembly: Annotated[SizeBytes, Field(ge=1 << 18, le=1 << 30)] | None = Field(
        None,
        description="memory for fragments at each endpoint (ipfrag_high_thresh); default: the "
        "kernel's, usually 4 MiB: a saturated link with fragments may lose packets there, as "
        "in practice",
    )
