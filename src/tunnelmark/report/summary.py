"""Estimates to what a report shows: one structure for every format."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.strata import set_apart
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.hypothesis import Verdict
from tunnelmark.report.beside import Comparison, compare, of_a_claim
from tunnelmark.report.charts import Chart
from tunnelmark.report.congestion import carrier_notes, congestion_notes
from tunnelmark.report.decision import Decision, decide
from tunnelmark.report.findings import findings
from tunnelmark.report.floor import floor_notes
from tunnelmark.report.predicted import Prediction
from tunnelmark.report.programs import programs
from tunnelmark.report.sections import Section, across, sections
from tunnelmark.report.statements import Statement, statements_of
from tunnelmark.report.uses import Use, uses_of
from tunnelmark.report.verdicts import deciding_of, moments_of, verdicts_of
from tunnelmark.report.workers import worker_notes
from tunnelmark.store import Manifest, Result


@dataclass(frozen=True)
class Invalid:
    """One attempt that does not count."""

    trial_id: str
    tunnel: str
    workload: str
    repeat: int
    attempt: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """Everything a report is made of."""

    manifest: Manifest
    points: tuple[PointEstimates, ...]
    """Of all paths together."""
    paths: tuple[PointEstimates, ...]
    """Of each of several simultaneous tunnels; empty where there is one."""
    blocks: tuple[BlockRecord, ...]
    invalid: tuple[Invalid, ...]
    valid_trials: int
    statements: tuple[Statement, ...]
    """Every difference that this report may state, decided together."""
    findings: tuple[str, ...]
    """The key findings, in words: what follows from ``statements`` and from what was seen."""
    sections: tuple[Section, ...]
    """Tables and figures by link and device."""
    across: tuple[Chart, ...]
    """Figures that set devices beside each other."""
    uses: tuple[Use, ...]
    """The first page: what to take for each use."""
    decisions: tuple[Decision, ...]
    """Each tunnel at each place."""
    verdicts: tuple[Verdict, ...]
    """What the run says of the study's hypotheses."""
    comparison: Comparison | None
    """Beside what was published, for a classic study."""
    prediction: Prediction | None = None
    """Beside a simulation, where one was given."""

    @property
    def programs(self) -> tuple[str, ...]:
        """Which program each tunnel was."""
        return programs(self.blocks)

    @property
    def own_verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts of hypotheses that are no claim of a publication."""
        return tuple(v for v in self.verdicts if not of_a_claim(v, self.manifest.study))


def summarise(result: Result) -> Summary:
    """Return the summary of a result directory."""
    trials = set_apart(result.trials(), result.blocks.values())
    confidence = result.manifest.confidence
    points = point_estimates(trials, confidence=confidence)
    names = sorted(set(trials["path"]) - {"total"}, key=lambda n: (len(n), n))
    several = len(names) > 1
    paths = tuple(
        point
        for name in names
        for point in point_estimates(trials, confidence=confidence, path=name)
        if several
    )
    total = trials.filter(pl.col("path") == "total")
    blocks = tuple(result.blocks.values())
    deciding = deciding_of(result)
    parts = sections(points, blocks, deciding)
    verdicts, unjudged = verdicts_of(result)
    statements = statements_of(parts, confidence=confidence, moments=moments_of(result))
    return Summary(
        manifest=result.manifest,
        points=points,
        paths=paths,
        blocks=blocks,
        invalid=tuple(_invalid(total)),
        valid_trials=int(total["valid"].sum()),
        statements=statements,
        findings=(
            *findings(parts, blocks, statements),
            *worker_notes(trials, points, (one.metric for one in deciding.values())),
            *congestion_notes(total),
            *carrier_notes(blocks),
            *floor_notes(total, points),
            *(() if unjudged is None else (unjudged,)),
        ),
        sections=parts,
        across=across(points),
        uses=uses_of(parts, blocks, statements, tuple(result.manifest.skipped)),
        decisions=decide(parts, blocks, statements),
        verdicts=verdicts,
        comparison=compare(result.manifest.study, points, verdicts, blocks),
    )


def points_of(result: Result) -> tuple[PointEstimates, ...]:
    """Return the points of a result, of all paths together, without anything decided of them."""
    trials = set_apart(result.trials(), result.blocks.values())
    return point_estimates(trials, confidence=result.manifest.confidence)


def unfinished(points: Sequence[PointEstimates]) -> tuple[PointEstimates, ...]:
    """Return the points without a single valid trial."""
    return tuple(point for point in points if point.valid == 0)


def _invalid(total: pl.DataFrame) -> list[Invalid]:
    return [
        Invalid(
            row["trial_id"],
            row["tunnel"],
            row["workload"],
            row["repeat"],
            row["attempt"],
            tuple(row["reasons"]),
        )
        for row in total.filter(~pl.col("valid")).iter_rows(named=True)
    ]
