"""CSV for programs, Markdown for people."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.show import cell, change, unit
from tunnelmark.report.summary import Summary

_FIELDS = (
    *("link", "device", "tunnel", "workload", "params", "path", "kind", "metric", "unit"),
    *("estimate", "low", "high", "confidence", "method", "n", "bring_ups"),
    *("valid_trials", "invalid_trials"),
)

SMOKE: Final = (
    "A smoke run shows that everything works, with few and short trials and wide limits of "
    "validity: its figures are no measurements."
)


def to_csv(summary: Summary) -> str:
    """Return one row per estimate and per difference, in stored units, missing values empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for point in (*summary.points, *summary.paths):
        for kind, found in (("estimate", point.estimates), ("difference", point.differences)):
            for metric, estimate in found.items():
                relative = kind == "difference" and METRICS[metric].scale == "log"
                writer.writerow(
                    {
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
                )
    return out.getvalue()


def to_markdown(summary: Summary) -> str:
    """Return the report as Markdown; what comes from the study is escaped."""
    manifest = summary.manifest
    lines = [f"# {escape(manifest.title)}", "", escape(manifest.description.strip()), ""]
    if manifest.scale == "smoke":
        lines += [f"**{SMOKE}**", ""]
    for decision in summary.decisions:
        lines += [f"## In short: {escape(decision.place)}", ""]
        lines += [f"- {escape(sentence)}" for sentence in decision.leaders]
        if decision.leaders:
            lines.append("")
        lines.append(
            "| tunnel | MTU to set, byte | overhead | "
            f"{decision.rate_title or 'rate'} | {decision.delay_title or 'delay'} | CPU per GiB | "
            "breaks first |"
        )
        lines.append("| --- " * 7 + "|")
        for c in decision.choices:
            cells = (c.tunnel, c.mtu, c.overhead, c.rate, c.delay, c.cpu, c.breaks)
            lines.append(f"| {' | '.join(map(escape, cells))} |")
        lines.append("")
    if summary.findings:
        lines += ["## Key findings", "", *(f"- {escape(f)}" for f in summary.findings), ""]
    lines += _verdicts(summary) + _published(summary)
    for section in summary.sections:
        for part in section.parts:
            lines += [f"## {escape(section.title)}: {escape(part.title)}", ""]
            lines += _table(part.family)
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


def _verdicts(summary: Summary) -> list[str]:
    if not summary.own_verdicts:
        return []
    lines = ["## Hypotheses", "", "| claim | verdict | why |", "| --- " * 3 + "|"]
    for verdict in summary.own_verdicts:
        claim = verdict.hypothesis.claim or verdict.hypothesis.name
        lines.append(_line((claim, verdict.outcome, verdict.reason)))
    return [*lines, ""]


def _published(summary: Summary) -> list[str]:
    found = summary.comparison
    if found is None:
        return []
    lines = ["## Measured beside published", "", escape(found.source), ""]
    lines += ["| claim | published | here | why |", "| --- " * 4 + "|"]
    for judged in found.claims:
        claim = judged.claim
        what = f"{claim.claim}: {claim.condition}" if claim.condition else claim.claim
        printed = f"{claim.value} {claim.unit}".strip()
        lines.append(_line((what, printed, judged.outcome or "not judged", judged.reason)))
    for table in found.tables:
        heads = (*table.heads, "published", "measured", "difference")
        lines += [
            "",
            f"### {escape(table.number)}: {escape(table.title)}, {escape(table.unit)}",
            "",
        ]
        lines += [_line(heads), "| --- " * len(heads) + "|"]
        lines += [
            _line((*row.cells, row.published, row.measured, row.difference)) for row in table.rows
        ]
    lines += ["", "### Differences from the original setup", ""]
    lines += ["| what | there | here | why |", "| --- " * 4 + "|"]
    lines += [_line((one.what, one.there, one.here, one.why)) for one in found.differs]
    return [*lines, ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _table(family: Family) -> list[str]:
    compared = family.compared if family.baselines else ()
    heads = [
        "tunnel",
        *family.headings,
        *(f"{METRICS[m].title} [{unit(m).name or METRICS[m].unit}]" for m in family.metrics),
        *(f"{METRICS[m].title} against none" for m in compared),
        "n",
    ]
    lines = [f"| {' | '.join(map(escape, heads))} |", "| --- " * len(heads) + "|"]
    for point in family.points:
        cells = [
            point.tunnel,
            *family.cells(point),
            *(cell(point, metric) for metric in family.metrics),
            *(change(point.differences.get(metric)) for metric in compared),
            f"{point.valid} valid, {point.invalid} invalid",
        ]
        lines.append(f"| {' | '.join(map(escape, cells))} |")
    return [*lines, ""]


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
