"""Tables for a paper: LaTeX with booktabs, to be read into a document."""

from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.units import unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.quantity import percent
from tunnelmark.report.families import Family, slug
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import cell
from tunnelmark.report.summary import Summary

_ESCAPED: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"\(\pm\)",
    "µ": r"\(\mu\)",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
_FIRST_STRANGE: Final = "\u0250"
"""The letters before it are in a usual font."""


def to_latex(summary: Summary) -> str:
    """Return one table for each place and kind of workload; what the study says is escaped."""
    manifest = summary.manifest
    lines = [
        f"% {_comment(manifest.study)}, run {_comment(manifest.run_id)}",
        f"% estimates with intervals of {percent(manifest.confidence)}",
        "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
    ]
    for section in summary.sections:
        for part in section.parts:
            lines += ["", *_table(section, part)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return text that LaTeX shows as it is; what it cannot show becomes a question mark."""
    return "".join(_ESCAPED.get(c) or (c if _plain(c) else "?") for c in text)


def _table(section: Section, part: Part) -> list[str]:
    family = part.family
    heads = ["tunnel", *family.headings, *map(_head, family.metrics), "n"]
    return [
        r"\begin{table}",
        rf"\caption{{{escape(part.title)} over {escape(section.title)}}}",
        rf"\label{{tab:{section.key}-{slug(family.kind)}}}",
        rf"\begin{{tabular}}{{l{'l' * len(family.headings)}{'r' * (len(family.metrics) + 1)}}}",
        r"\toprule",
        _line(heads),
        r"\midrule",
        *(_line(_row(family, point)) for point in family.points),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def _row(family: Family, point: PointEstimates) -> list[str]:
    figures = [cell(point, metric) for metric in family.metrics]
    return [point.tunnel, *family.cells(point), *figures, str(point.valid)]


def _line(cells: list[str]) -> str:
    return f"{' & '.join(map(escape, cells))} \\\\"


def _head(metric: str) -> str:
    return f"{METRICS[metric].title} [{unit(metric).name or METRICS[metric].unit}]"


def _plain(character: str) -> bool:
    return character.isprintable() and character < _FIRST_STRANGE


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
