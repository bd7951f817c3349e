"""What a study claims before it is run, in frozen form, and what a run says of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["superiority", "non_inferiority", "equivalence", "order", "shape", "threshold"]
Shape = Literal[
    "rises_with",
    "falls_with",
    "rises_steadily",
    "falls_steadily",
    "rises_past",
    "falls_past",
    "peaks_at",
]
Outcome = Literal["confirmed", "rejected", "undecided"]

FRAGMENTATION_POINT: Final = "fragmentation_point_bytes"
"""Stands beside the metrics of trials: what the proof by wire found for a tunnel and link."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; None: without bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Selection:
    """Some points of a study; whatever is not named is not restricted."""

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``tunnel``, ``link``, ``device``, ``workload`` to labels, any of which is meant."""
    params: Mapping[str, "tuple[object, ...] | Range"] = field(default_factory=dict)
    """Column of the workload (``payload_bytes``, ``gap_ns``) to values or a range."""

    @property
    def keys(self) -> frozenset[str]:
        """Names of what is restricted."""
        return frozenset((*self.labels, *self.params))


@dataclass(frozen=True)
class Margin:
    """How much of a difference does not matter."""

    value: float
    """In the metric's stored unit, or a share of the second group's value."""
    relative: bool


@dataclass(frozen=True)
class Hypothesis:
    """One claim that a run can confirm or reject."""

    name: str
    kind: Kind
    metric: str
    """A name of ``METRICS``, or ``FRAGMENTATION_POINT`` (threshold only)."""
    claim: str = ""
    """In words, for the report."""
    family: str = "study"
    """Hypotheses of a family are judged together: Holm's correction."""
    groups: tuple[Selection, ...] = ()
    """What is compared with what (two); for an order all of it, the highest figure first."""
    over: Selection = Selection()
    """Where the claim is made; everywhere if it restricts nothing."""
    hold: Literal["everywhere", "on_average"] = "everywhere"
    better: Literal["higher", "lower"] = "higher"
    margin: Margin | None = None
    by: Margin | None = None
    """Of an equivalence: by how much the first is claimed to exceed the second; then the margin
    lies around this. A relative one is ratio minus 1, negative where the first is below."""
    along: str | None = None
    """Column of the workload along which a shape is claimed."""
    shape: Shape | None = None
    at: float | Literal["fragmentation_point"] | None = None
    """Where a shape has its step or peak, in the unit of ``along``."""
    bound: Literal["at_least", "at_most", "near"] | None = None
    limit: float | None = None
    """Of a threshold, in the metric's stored unit."""
    of: Literal["each", "highest", "lowest"] = "each"
    """Which of the points a threshold is about."""
    left_out: str | None = None
    """What it speaks of and a smaller scale of the study leaves out, in words."""


@dataclass(frozen=True)
class Deciding:
    """The interval that decides a hypothesis, or would have to."""

    what: str
    """Which points: ``wireguard against none, 8 Mbit/s, payload_bytes 64``."""
    metric: str
    quantity: Literal["value", "difference", "ratio", "slope", "relative_slope"]
    """``ratio``: ratio minus 1; ``relative_slope``: growth per unit along, as a share; all others
    in the metric's stored unit (slope: per unit along)."""
    value: float
    low: float | None
    """None, like ``high``: too few repeats for an interval."""
    high: float | None
    limit: float
    """What the interval has to lie beyond, in the same quantity."""
    side: Literal["above", "below"]
    """On which side of the limit the claim wants it."""
    confidence: float
    """Of the interval: Holm's correction and the looks of the run are in it."""
    repeats: int
    method: str


@dataclass(frozen=True)
class Verdict:
    """What a run says of a hypothesis."""

    hypothesis: Hypothesis
    outcome: Outcome
    reason: str
    """One sentence with the figures."""
    deciding: Deciding | None
    """None where nothing was measured that the hypothesis speaks of."""
    tests: int
    """How many comparisons the hypothesis consists of."""
    p_confirm: float
    """How likely figures that speak for it this clearly are if it is false; before Holm."""
    p_reject: float
    """The same against it."""
    repeats_to_settle: int | None
    """Of an undecided one: with so many repeats four of five runs would decide it, if the figures
    stay as they are; None where no number up to 10,000 would, or the repeats show nothing."""


def param_fits(value: object, wanted: tuple[object, ...] | Range) -> bool:
    """Say whether a parameter's value is wanted; one that a workload does not have is not."""
    if isinstance(wanted, Range):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low = -math.inf if wanted.low is None else wanted.low
        high = math.inf if wanted.high is None else wanted.high
        return low <= value <= high
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in wanted)
