"""A study in frozen form, as the parser leaves it."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tunnelmark.model.hypothesis import Hypothesis
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import CoreShare, DurationNs, Ratio, SizeBytes
from tunnelmark.model.topology import Router
from tunnelmark.model.trial import DriverSpec


class Precision(Params):
    """When a point has been repeated often enough."""

    metric: str = Field("goodput_bit_s", description="whose interval decides")
    metrics: Mapping[str, str] = Field(
        {}, description="the same for one kind of workload, where a study has several"
    )
    of: Literal["difference", "figure"] = Field(
        "difference",
        description="what the interval is of: the paired difference to no tunnel, or each point's "
        "figure by itself, the baseline's too",
    )
    relative_half_width: Annotated[Ratio, Field(gt=0)] = Field(
        0.05,
        description="half of the interval over the estimate; of a difference, over the ratio for "
        "rates and times, else over the figure",
    )
    confidence: Annotated[Ratio, Field(ge=0.5, le=0.999)] = Field(
        0.95, description="of the interval"
    )
    min_repeats: int = Field(3, ge=1, le=1000)
    max_repeats: int = Field(10, ge=1, le=1000)
    bring_ups: int = Field(
        2,
        ge=1,
        le=1000,
        description="starts of a tunnel that the least number of repeats is spread over, so that "
        "what differs between starts is in the interval; further repeats go on in the same way, "
        "but 1 is one start for all; at most min_repeats",
    )
    max_invalid: int = Field(
        3, ge=0, le=100, description="invalid attempts at one repeat before the point is given up"
    )

    @field_validator("metric")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in METRICS:
            near = difflib.get_close_matches(value, METRICS, 1)
            hint = f", did you mean {near[0]}?" if near else f"; known are {', '.join(METRICS)}"
            raise ValueError(f"is no metric{hint}")
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
        if "bring_ups" in self.model_fields_set and self.bring_ups > self.min_repeats:
            raise ValueError(
                f"bring_ups is {self.bring_ups}, must be at most min_repeats, {self.min_repeats}"
            )
        if self.max_repeats < self.min_repeats:
            raise ValueError(
                f"max_repeats is {self.max_repeats}, must be at least min_repeats, "
                f"{self.min_repeats}"
            )
        return self


class Probes(Params):
    """What is looked at beside a trial only where a study asks for it; see docs/probes.md."""

    capture_packets: int = Field(
        0,
        ge=0,
        le=50_000,
        description="packets that are captured at each end of the link in every trial, for the "
        "delay by place and the sizes of packets; 0: no capture, which takes CPU",
    )


class Limits(Params):
    """Limits of validity that a study may set; docs/validity.md gives the reasons."""

    sender_lateness: Annotated[DurationNs, Field(ge=0)] = Field(
        1_000_000,
        description="99th percentile of how late packets left that is always good enough: a "
        "thousandth of a second is below what any answer of a study rests on",
    )
    sender_lateness_gap: Ratio = Field(
        0.1,
        description="the same as a share of the gap, for slow streams: a tenth of the gap "
        "leaves order and load as they were asked for",
    )
    emulated_lateness: Annotated[DurationNs, Field(ge=0)] = Field(
        5_000_000,
        description="the same for sender and link where a machine's CPU is emulated: its timers "
        "are late by 1 to 4 ms, and its delays stand only beside those of its kind",
    )
    steal: Ratio = Field(0.05, description="share of time taken by the hypervisor")
    starvation: CoreShare = Field(
        0.1,
        description="share of the time in which the tunnel's programs waited for a core that "
        "programs of others held: what is measured then is their load",
    )
    measuring_cpu: CoreShare = Field(
        0.9, description="busy share of one core by a measuring program"
    )
    link_lateness: DurationNs = Field(
        2_000_000, description="99th percentile of how late the link emulator handed packets on"
    )


class TopologyParams(Params):
    """What is between client and server beside the link, and what their kernels grant."""

    router: Router = Field(
        "none",
        description="between the link and the server: a router, or one with NAT, behind which the "
        "client is",
    )
    reassembly: Annotated[SizeBytes, Field(ge=1 << 18, le=1 << 30)] | None = Field(
        None,
        description="memory for fragments at each endpoint (ipfrag_high_thresh); without it the "
        "kernel's own, 4 MiB on most: a saturated link with fragments may lose there, as it does "
        "in practice",
    )


class PlaceParams(Params):
    """Where the tunnels of a study are measured."""

    together: bool = Field(
        False,
        description="measure all tunnels where the one with the greatest needs can be: in a "
        "machine with a full kernel, as soon as one of them needs that; figures of an emulated "
        "and of a native CPU are never compared",
    )


@dataclass(frozen=True)
class Study:
    """What is to be measured, and how well."""

    name: str
    title: str
    description: str
    seed: int
    precision: Precision
    limits: Limits
    tunnels: tuple[DriverSpec, ...]
    """Without the baseline, which is always added."""
    links: tuple[DriverSpec, ...]
    devices: tuple[DriverSpec, ...]
    workloads: tuple[DriverSpec, ...]
    """One for each combination of varied parameters, in the order of the file."""
    text: str
    """The file as it was read, kept in the manifest."""
    source: str
    """Where it came from, for messages."""
    scale: str = "full"
    """``smoke``, ``short`` or ``full``."""
    topology: TopologyParams = field(default_factory=TopologyParams)
    probes: Probes = field(default_factory=Probes)
    place: PlaceParams = field(default_factory=PlaceParams)
    hypotheses: tuple[Hypothesis, ...] = ()
    """What is claimed before the run."""
