"""CSV and Parquet for programs, Markdown for people."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.units import unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.beside import Judged
from tunnelmark.report.brief import brief
from tunnelmark.report.cpu_table import ABOUT, TITLE, cpu_table
from tunnelmark.report.families import Family
from tunnelmark.report.show import cell, change
from tunnelmark.report.summary import Summary

COLUMNS: Final = pl.Schema(
    {
        "link": pl.String(),
        "device": pl.String(),
        "tunnel": pl.String(),
        "workload": pl.String(),
        "params": pl.String(),
        "path": pl.String(),
        "kind": pl.String(),
        "metric": pl.String(),
        "unit": pl.String(),
        "estimate": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "confidence": pl.Float64(),
        "method": pl.String(),
        "n": pl.Int64(),
        "bring_ups": pl.Int64(),
        "valid_trials": pl.Int64(),
        "invalid_trials": pl.Int64(),
    }
)
"""Of CSV and Parquet, in this order: docs/reading-a-report.md says what each is."""

SMOKE: Final = (
    "A smoke run checks that everything works, with few, short trials and wide limits of "
    "validity: do not use its figures as measurements."
)


def to_csv(summary: Summary) -> str:
    """Return one row per estimate and per difference, in stored units, missing values empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(summary))
    return out.getvalue()


def to_parquet(summary: Summary) -> bytes:
    """Return the rows of ``to_csv`` with types, for DuckDB, Polars and pandas."""
    out = io.BytesIO()
    pl.DataFrame(list(_rows(summary)), schema=COLUMNS).write_parquet(out)
    return out.getvalue()


def _rows(summary: Summary) -> Iterator[Mapping[str, Any]]:
    for point in (*summary.points, *summary.paths):
        for kind, found in (("estimate", point.estimates), ("difference", point.differences)):
            for metric, estimate in found.items():
                relative = kind == "difference" and METRICS[metric].scale == "log"
                yield {
                    **_place(point),
                    "kind": "ratio - 1" if relative else kind,
                    "metric": metric,
                    "unit": "ratio" if relative else METRICS[metric].unit,
                    "estimate": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "confidence": estimate.confidence,
                    "method": estimate.method,
                    "n": estimate.n,
                    "bring_ups": estimate.bring_ups,
                }


def to_markdown(summary: Summary) -> str:
    """Return the report as Markdown; what comes from the study is escaped."""
    manifest = summary.manifest
    lines = [f"# {escape(manifest.title)}", "", escape(manifest.description.strip()), ""]
    if manifest.scale == "smoke":
        lines += [f"**{SMOKE}**", ""]
    if len(summary.uses) > 1:
        lines += ["## In short", ""]
        lines += [f"- {label}: {escape(text)}" for label, text in brief(summary)]
        lines.append("")
    for use in summary.uses:
        lines += [f"## In short: {escape(use.title)}", "", f"**{escape(use.recommendation)}**", ""]
        lines += [f"- {label}: {escape(text)}" for label, text in use.rows]
        lines.append("")
    if summary.findings:
        lines += ["## Key findings", "", *(f"- {escape(f)}" for f in summary.findings), ""]
    lines += _verdicts(summary) + _published(summary) + _choices(summary)
    for section in summary.sections:
        for part in section.parts:
            lines += [f"## {escape(section.title)}: {escape(part.title)}", ""]
            lines += _table(part.family) + _costs(part.family)
            if (section, part) == (summary.sections[0], summary.sections[0].parts[0]):
                lines += [*(f"- {escape(line)}" for line in summary.programs), ""]
    if summary.invalid:
        lines += ["## Invalid trials", ""]
        lines += [
            f"- {escape(i.tunnel)}, {escape(i.workload)}, repeat {i.repeat}, attempt {i.attempt}: "
            f"{escape('; '.join(i.reasons))}"
            for i in summary.invalid
        ]
        lines.append("")
    lines += ["## Environment", ""]
    lines += [f"- {escape(name)}: {escape(value)}" for name, value in manifest.environment.items()]
    return "\n".join(lines) + "\n"


def _choices(summary: Summary) -> list[str]:
    lines = []
    for decision in summary.decisions:
        rate, delay = decision.rate_title or "rate", decision.delay_title or "delay"
        heads = ("tunnel", "MTU to set, bytes", "overhead", rate, delay, "CPU", "breaks first")
        rows = (
            (c.tunnel, c.mtu, c.overhead, c.rate, c.delay, c.cpu, c.breaks)
            for c in decision.choices
        )
        lines += [f"## Each tunnel: {escape(decision.place)}", "", *_markdown(heads, rows), ""]
    return lines


def _verdicts(summary: Summary) -> list[str]:
    if not summary.own_verdicts:
        return []
    rows = (
        (verdict.hypothesis.claim or verdict.hypothesis.name, verdict.outcome, verdict.reason)
        for verdict in summary.own_verdicts
    )
    return ["## Hypotheses", "", *_markdown(("claim", "verdict", "why"), rows), ""]


def _published(summary: Summary) -> list[str]:
    found = summary.comparison
    if found is None:
        return []
    lines = ["## Measured and published", "", escape(found.source), ""]
    lines += claims_table(found.claims)
    for table in found.tables:
        heads = (*table.heads, "published", "measured", "difference")
        lines += [
            "",
            f"### {escape(table.number)}: {escape(table.title)}, {escape(table.unit)}",
            "",
        ]
        lines += _markdown(
            heads, ((*row.cells, row.published, row.measured, row.difference) for row in table.rows)
        )
    rows = ((one.what, one.there, one.here, one.why) for one in found.differs)
    lines += ["", "### Differences from the original setup", ""]
    return [*lines, *_markdown(("what", "there", "here", "why"), rows), ""]


def claims_table(claims: Sequence[Judged]) -> list[str]:
    """Return the lines of a Markdown table of the claims of a publication."""
    rows = []
    for judged in claims:
        claim = judged.claim
        what = f"{claim.claim}: {claim.condition}" if claim.condition else claim.claim
        printed = f"{claim.value} {claim.unit}".strip()
        rows.append((what, printed, judged.outcome or "not judged", judged.reason))
    return _markdown(("claim", "published", "here", "why"), rows)


def _table(family: Family) -> list[str]:
    compared = family.compared if family.baselines else ()
    heads = [
        "tunnel",
        *family.headings,
        *(f"{METRICS[m].title} [{unit(m).name or METRICS[m].unit}]" for m in family.metrics),
        *(f"{METRICS[m].title} against none" for m in compared),
        "n",
    ]
    rows = (
        (
            point.tunnel,
            *family.cells(point),
            *(cell(point, metric) for metric in family.metrics),
            *(change(point.differences.get(metric)) for metric in compared),
            f"{point.valid} valid, {point.invalid} invalid",
        )
        for point in family.points
    )
    return [*_markdown(heads, rows), ""]


def _costs(family: Family) -> list[str]:
    table = cpu_table(family)
    if table is None:
        return []
    return [f"**{TITLE}.** {ABOUT}", "", *_markdown(table.heads, table.rows), ""]


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; what is in the cells is escaped."""
    head, *body = (f"| {' | '.join(map(escape, cells))} |" for cells in (heads, *rows))
    return [head, "| --- " * len(heads) + "|", *body]


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    special = "\\`*_{}[]<>()#+!|~"
    return "".join(f"\\{c}" if c in special else c for c in text.replace("\n", " "))


def _place(point: PointEstimates) -> dict[str, object]:
    return {
        "link": point.link,
        "device": point.device,
        "tunnel": point.tunnel,
        "workload": point.workload,
        "params": json.dumps(dict(point.params), sort_keys=True),
        "path": point.path,
        "valid_trials": point.valid,
        "invalid_trials": point.invalid,
    }
