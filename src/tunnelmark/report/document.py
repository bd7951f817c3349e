"""The report as one JSON document, for programs: what was decided, with its method and p.

The models are the schema: ``docs/report.schema.json`` is made from them (``make report-schema``).
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from tunnelmark.analysis.cpu_cost import CpuCost, cpu_costs
from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.hypothesis import Verdict
from tunnelmark.report.predicted import Predicted, Prediction
from tunnelmark.report.statements import Statement
from tunnelmark.report.summary import Invalid, Summary
from tunnelmark.report.uses import Use

FORMAT: Final = 2
"""Of this document; raised when a field changes its meaning or goes away."""


def to_json(summary: Summary) -> str:
    """Return the document; figures in stored units, differences as ratio minus 1 or in the unit."""
    return ReportDocument.of(summary).model_dump_json(indent=1) + "\n"


def schema() -> str:
    """Return the JSON Schema of the document, as it is committed."""
    found = ReportDocument.model_json_schema(mode="serialization")
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UseEntry(_Part):
    """What the first page says of one use: a workload over a link on a device."""

    place: str
    workload: str
    deciding_metric: str | None = Field(description="Name of the metric; null: none compares.")
    recommended: tuple[str, ...] = Field(
        description="One tunnel, or several between which no clear difference was found."
    )
    clear: bool = Field(description="Whether it is one, better than every other.")
    recommendation: str
    better_by: str
    settings: str
    costs: str
    cpu: str
    breaks: str
    unknown: str

    @classmethod
    def of(cls, use: Use) -> Self:
        """Return the entry."""
        names = ("place", "workload", "recommended", "clear", "recommendation", "better_by")
        more = ("settings", "costs", "cpu", "breaks", "unknown")
        values = {name: getattr(use, name) for name in (*names, *more)}
        return cls(deciding_metric=use.metric, **values)


class DecisionEntry(_Part):
    """One difference, decided together with all others of the report."""

    link: str
    device: str
    workload_kind: str
    tunnel: str
    against: str = Field(description="Another tunnel, or none.")
    points: tuple[str, ...]
    metric: str
    quantity: str
    value: float | None = Field(description="Ratio minus 1, or in the metric's stored unit.")
    low: float | None
    high: float | None
    confidence: float
    p: float
    outcome: Literal["differs", "alike", "open"]
    repeats: int
    bring_ups: int
    method: str
    repeats_to_settle: int | None

    @classmethod
    def of(cls, one: Statement, summary: Summary) -> Self:
        """Return the entry."""
        section = next(s for s in summary.sections if s.key == one.section)
        decision = one.decision
        return cls(
            link=section.link,
            device=section.device,
            workload_kind=one.part,
            tunnel=one.tunnel,
            against=one.rival or "none",
            points=tuple(point.point_id for point in one.points),
            metric=decision.metric,
            quantity=decision.contrast.quantity,
            value=_finite(decision.value),
            low=_finite(decision.low),
            high=_finite(decision.high),
            confidence=decision.confidence,
            p=decision.p,
            outcome=decision.outcome,
            repeats=decision.contrast.spread.repeats,
            bring_ups=decision.contrast.spread.bring_ups,
            method=decision.contrast.method,
            repeats_to_settle=decision.to_settle,
        )


class DecidingEntry(_Part):
    """The interval that decides a hypothesis, or would have to."""

    what: str
    metric: str
    quantity: Literal["value", "difference", "ratio", "slope", "relative_slope"]
    value: float | None
    low: float | None
    high: float | None
    limit: float | None
    side: Literal["above", "below"]
    confidence: float
    repeats: int
    method: str


class VerdictEntry(_Part):
    """What the run says of a hypothesis of its study."""

    name: str
    claim: str
    kind: str
    family: str
    outcome: Literal["confirmed", "rejected", "undecided"]
    reason: str
    tests: int
    p_confirm: float
    p_reject: float
    repeats_to_settle: int | None
    deciding: DecidingEntry | None

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """Return the entry."""
        hypothesis, deciding = verdict.hypothesis, verdict.deciding
        entry = None
        if deciding is not None:
            ends = {n: _finite(getattr(deciding, n)) for n in ("value", "low", "high", "limit")}
            entry = DecidingEntry(**{**vars(deciding), **ends})
        return cls(
            name=hypothesis.name,
            claim=hypothesis.claim,
            kind=hypothesis.kind,
            family=hypothesis.family,
            outcome=verdict.outcome,
            reason=verdict.reason,
            tests=verdict.tests,
            p_confirm=verdict.p_confirm,
            p_reject=verdict.p_reject,
            repeats_to_settle=verdict.repeats_to_settle,
            deciding=entry,
        )


class EstimateEntry(_Part):
    """A figure with its interval, in the metric's stored unit (the end of its name)."""

    value: float | None
    low: float | None = Field(description="Null, like high: too few repeats, or all alike.")
    high: float | None
    repeats: int
    bring_ups: int
    method: str

    @classmethod
    def of(cls, one: Estimate) -> Self:
        """Return the entry."""
        ends = {name: _finite(getattr(one, name)) for name in ("value", "low", "high")}
        return cls(**ends, repeats=one.n, bring_ups=one.bring_ups, method=one.method)


class CpuCostEntry(_Part):
    """What a tunnel costs in CPU; null is not measured, never 0."""

    of_programs: EstimateEntry | None = Field(
        description="Of the tunnel's programs; null where the kernel or the link does its work."
    )
    of_machine: EstimateEntry | None = Field(
        description="Of everything that ran, above the paired trial without a tunnel: programs, "
        "softirq and threads of the kernel together. It contains of_programs."
    )
    clear: bool = Field(description="Whether of_machine can be distinguished from nothing.")

    @classmethod
    def of(cls, cost: CpuCost) -> Self:
        """Return the entry."""
        ends = (cost.of_programs, cost.of_machine)
        own, all_ = (None if end is None else EstimateEntry.of(end) for end in ends)
        return cls(of_programs=own, of_machine=all_, clear=cost.clear)


class PointEntry(_Part):
    """All that is known of one point."""

    point_id: str
    tunnel: str
    link: str
    device: str
    workload: str
    params: Mapping[str, bool | int | float | str]
    path: str = Field(description="total, or the number of one of several simultaneous tunnels.")
    valid: int
    invalid: int
    broken: bool = Field(description="Nothing came through in any valid trial.")
    estimates: Mapping[str, EstimateEntry]
    differences: Mapping[str, EstimateEntry] = Field(
        description="From no tunnel: ratio minus 1 for rates and times, else in the stored unit."
    )
    cpu_costs: Mapping[str, CpuCostEntry] = Field(
        {}, description="By the metric of the programs, such as cpu_cost_s_per_mpkt."
    )

    @classmethod
    def of(cls, point: PointEstimates) -> Self:
        """Return the entry."""
        plain = ("point_id", "tunnel", "link", "device", "workload", "path", "valid", "invalid")
        return cls(
            **{name: getattr(point, name) for name in (*plain, "broken")},
            params=dict(point.params),
            estimates={name: EstimateEntry.of(e) for name, e in point.estimates.items()},
            differences={name: EstimateEntry.of(e) for name, e in point.differences.items()},
            cpu_costs={name: CpuCostEntry.of(cost) for name, cost in cpu_costs(point).items()},
        )


class InvalidEntry(_Part):
    """One attempt that does not count."""

    trial_id: str
    tunnel: str
    workload: str
    repeat: int
    attempt: int
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, one: Invalid) -> Self:
        """Return the entry."""
        return cls(**vars(one))


class PredictedEntry(_Part):
    """A figure of a simulation beside the measured one, in the metric's stored unit."""

    tunnel: str
    link: str
    device: str
    workload: str = Field(description="Empty for the fragmentation point.")
    metric: str
    measured: float
    low: float | None = Field(description="Interval of the measured figure; null: it has none.")
    high: float | None
    predicted: float
    difference: float | None = Field(description="Predicted over measured less 1.")
    limit: str
    within: bool | None = Field(description="Null: not known.")

    @classmethod
    def of(cls, one: Predicted) -> Self:
        """Return the entry."""
        ends = {name: _finite(getattr(one, name)) for name in ("low", "high", "difference")}
        return cls(**{**vars(one), **ends})


class PredictionEntry(_Part):
    """A simulated result beside this one: report --beside."""

    simulated: str = Field(description="Name of its directory.")
    said: str
    notes: tuple[str, ...]
    figures: tuple[PredictedEntry, ...]

    @classmethod
    def of(cls, one: Prediction) -> Self:
        """Return the entry."""
        figures = tuple(PredictedEntry.of(row) for row in one.rows)
        return cls(simulated=one.source, said=one.said, notes=one.notes, figures=figures)


class ReportDocument(_Part):
    """A report of Tunnelmark."""

    format: Literal[2] = FORMAT
    study: str
    title: str
    run_id: str
    scale: str
    confidence: float
    outcome: str | None = Field(description="Null while the run is under way or if it was killed.")
    valid_trials: int
    uses: tuple[UseEntry, ...]
    findings: tuple[str, ...]
    decisions: tuple[DecisionEntry, ...]
    verdicts: tuple[VerdictEntry, ...]
    points: tuple[PointEntry, ...]
    invalid: tuple[InvalidEntry, ...]
    skipped: Mapping[str, str] = Field(description="Tunnels this machine cannot run, and why.")
    prediction: PredictionEntry | None = Field(None, description="Null: no --beside was given.")

    @classmethod
    def of(cls, summary: Summary) -> Self:
        """Return the document of a summary."""
        manifest = summary.manifest
        head: dict[str, Any] = {
            name: getattr(manifest, name)
            for name in ("study", "title", "run_id", "scale", "confidence", "outcome", "skipped")
        }
        return cls(
            **head,
            valid_trials=summary.valid_trials,
            uses=tuple(UseEntry.of(one) for one in summary.uses),
            findings=summary.findings,
            decisions=tuple(DecisionEntry.of(one, summary) for one in summary.statements),
            verdicts=tuple(VerdictEntry.of(one) for one in summary.verdicts),
            points=tuple(PointEntry.of(one) for one in (*summary.points, *summary.paths)),
            invalid=tuple(InvalidEntry.of(one) for one in summary.invalid),
            prediction=None
            if summary.prediction is None
            else PredictionEntry.of(summary.prediction),
        )


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None
