"""Estimates to what a report shows: one structure for every format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from tunnelmark.analysis.emulated import is_marked, set_apart, shown_name
from tunnelmark.analysis.estimates import Estimate, PointEstimates, point_estimates
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.hypothesis import Verdict
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.beside import Comparison, compare, of_a_claim
from tunnelmark.report.charts import Chart
from tunnelmark.report.compressed import compressed
from tunnelmark.report.decision import Decision, decide
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Section, across, sections
from tunnelmark.report.show import change, figure, unit
from tunnelmark.report.verdicts import verdicts_of
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
    findings: tuple[str, ...]
    """What holds, in words, as far as the intervals support it."""
    sections: tuple[Section, ...]
    """Tables and figures by link and device."""
    across: tuple[Chart, ...]
    """Figures that set devices beside each other."""
    decisions: tuple[Decision, ...]
    """The first page."""
    verdicts: tuple[Verdict, ...]
    """What the run says of the study's hypotheses."""
    comparison: Comparison | None
    """Beside what was published, for a classic study."""

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
    parts = sections(points, blocks)
    verdicts, unjudged = verdicts_of(result)
    return Summary(
        manifest=result.manifest,
        points=points,
        paths=paths,
        blocks=blocks,
        invalid=tuple(_invalid(total)),
        valid_trials=int(total["valid"].sum()),
        findings=(*_findings(parts, blocks), *(() if unjudged is None else (unjudged,))),
        sections=parts,
        across=across(points),
        decisions=decide(parts, blocks),
        verdicts=verdicts,
        comparison=compare(result.manifest.study, points, verdicts),
    )


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


def _findings(parts: Sequence[Section], blocks: Sequence[BlockRecord]) -> list[str]:
    found = [
        f"{shown_name(block.tunnel, block)} over {block.link} was given up: {block.error}."
        for block in blocks
        if block.error
    ]
    if any(is_marked(point.tunnel) for section in parts for point in _points(section)):
        found.append(_ABOUT_EMULATED)
    found += [
        f"{tunnel} over {section.title}: the largest payload in one packet on the link is "
        f"{largest} byte."
        for section in parts
        for tunnel, largest in section.fragmentation.items()
    ]
    for section in parts:
        found += compressed(_points(section), section.title)
        for part in section.parts:
            family = part.family
            for tunnel in dict.fromkeys(p.tunnel for p in family.points if not p.is_baseline):
                own = [p for p in family.points if p.tunnel == tunnel]
                told = (*family.compared, *(m for m in family.metrics if m in _ALSO_TOLD))
                for metric in told:
                    if sentence := _difference(family, own, metric):
                        found.append(f"{tunnel} over {section.title}: {sentence}")
    return found


def _points(section: Section) -> Iterator[PointEstimates]:
    for part in section.parts:
        yield from part.family.points


_ABOUT_EMULATED: Final = (
    '"emulated" means that client, server and link ran in a machine whose CPU is software: their '
    "delays and CPU figures compare only with those of the same kind; packet sizes, overhead and "
    "fragmentation points with all."
)
_ALSO_TOLD: Final = ("loss_forward_ratio", "loss_reverse_ratio", "voip_mos_min")


def _difference(family: Family, own: Sequence[PointEstimates], metric: str) -> str | None:
    """Say where a metric differs from the baseline; silent where no interval excludes 0."""
    clear = [
        (p, d) for p in own if (d := p.differences.get(metric)) is not None and _excludes_zero(d)
    ]
    if not clear:
        return None
    point, largest = max(clear, key=lambda entry: abs(entry[1].value))
    cells = [
        f"{name} {cell}"
        for name, cell in zip(family.headings, family.cells(point), strict=True)
        if cell
    ]
    place = f" at {', '.join(cells)}" if cells else ""
    return (
        f"{METRICS[metric].title} differs from no tunnel at {len(clear)} of {len(own)} points, "
        f"most{place}: {figure(point.estimates.get(metric))} {unit(metric).name}, "
        f"{change(largest)}."
    )


def _excludes_zero(estimate: Estimate) -> bool:
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low > 0 or estimate.high < 0
