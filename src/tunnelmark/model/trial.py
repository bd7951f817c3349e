"""A study in frozen form: points, blocks and trials, and what a trial came to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from tunnelmark.model.block import Stratum
from tunnelmark.model.seeds import short_hash
from tunnelmark.model.validity import Validity

BASELINE = "none"
"""Kind of the tunnel that is no tunnel; its trials are the baseline of every block."""


_WORDS = "background"
"""Column of a workload that has labels; what is beside it has columns of its own."""


def named(*specs: "DriverSpec") -> str:
    """Return a short stable name for some drivers together."""
    return short_hash("\n".join(spec.identity for spec in specs))


@dataclass(frozen=True)
class Background:
    """A load that a study wants beside a workload."""

    label: str
    kind: str
    params: Mapping[str, object]
    path: str
    """``inside`` the tunnel or ``outside`` it, on the same link."""
    columns: Mapping[str, object] = field(default_factory=dict)
    """As those of a ``DriverSpec``."""


@dataclass(frozen=True)
class DriverSpec:
    """A driver of the study with one choice of its parameters."""

    kind: str
    label: str
    """Name shown in reports, unique within the study."""
    params: Mapping[str, object]
    """Parameters as the study writes them, ready for ``Params.model_validate``."""
    columns: Mapping[str, object] = field(default_factory=dict)
    """The same, defaults included, parsed and named with their unit: ``{"gap_ns": 5000000}``."""
    background: tuple[Background, ...] = ()
    """Loads beside a workload; none for other drivers."""

    @cached_property
    def identity(self) -> str:
        """What it is, however it was written.

        Parsed values with their units, defaults included: "10 ms" and "0.01 s" are one, and a
        default that has changed is another. Labels are names for readers and no part of it.
        """
        values = {name: value for name, value in self.columns.items() if name != _WORDS}
        beside = [[one.kind, dict(one.columns), one.path] for one in self.background]
        return json.dumps([self.kind, values, beside], sort_keys=True, default=str)


@dataclass(frozen=True)
class Point:
    """What a figure stands for: one tunnel, link, device and workload with fixed parameters."""

    point_id: str
    """Short stable hash over everything below."""
    tunnel: DriverSpec
    link: DriverSpec
    device: DriverSpec
    workload: DriverSpec

    @cached_property
    def pair_id(self) -> str:
        """What a tunnel's point and its baseline have in common."""
        return named(self.link, self.device, self.workload)


@dataclass(frozen=True)
class Trial:
    """One run of one point."""

    trial_id: str
    """``<block>-<point>-<repeat>``: the same after a resume."""
    block_id: str
    point: Point
    repeat: int
    seed: int
    bring_up: int = 1
    """Which start of the block's tunnel it belongs to, 1-based; ``repeat`` decides it."""


@dataclass(frozen=True)
class Block:
    """Trials that share a lab and a tunnel that is up."""

    block_id: str
    tunnel: DriverSpec
    link: DriverSpec
    device: DriverSpec
    points: tuple[Point, ...]
    """Points of the tunnel, then of the baseline in the same lab."""

    @property
    def baseline(self) -> DriverSpec:
        """What the block's tunnel is compared with: nothing, over as many paths."""
        return next(point.tunnel for point in self.points if point.tunnel.kind == BASELINE)


@dataclass(frozen=True)
class Measurement:
    """Figures of one path of a trial, by names of ``METRICS``. None means: never came back."""

    path: str
    """``total``, or the number of the tunnel among ``count`` simultaneous ones."""
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Progress:
    """How far a trial is, for the display."""

    done_ratio: float
    figures: Mapping[str, float]
    """Latest figures by metric name."""


@dataclass(frozen=True)
class TrialResult:
    """A trial that was run, valid or not."""

    trial: Trial
    attempt: int
    """1 for the first run of this repeat, more after invalid ones."""
    started_at: datetime
    duration_s: float
    measurements: tuple[Measurement, ...]
    validity: Validity
    details: Mapping[str, object] = field(default_factory=dict)
    """Workload-specific evidence for the report, JSON types only."""
    samples: tuple[str, ...] = ()
    """Files under ``samples/``, relative to the result directory."""
    stratum: Stratum = Stratum.NAMESPACES
    """Where its figures come from."""
