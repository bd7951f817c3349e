"""A report for a terminal of 80 columns."""

import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tunnelmark.analysis.cpu_cost import COSTS, cpu_cost
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.units import unit
from tunnelmark.model.block import time_by_place
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.quantity import percent
from tunnelmark.report.brief import brief
from tunnelmark.report.families import Family
from tunnelmark.report.parameters import parameter
from tunnelmark.report.predicted import HEADS, Prediction
from tunnelmark.report.sections import Part
from tunnelmark.report.show import NOTHING, cell, change, figure
from tunnelmark.report.summary import Summary, unfinished
from tunnelmark.report.tables import SMOKE
from tunnelmark.report.verdicts import needed

_SHORT: Final = {
    "goodput_bit_s": "goodput",
    "loss_forward_ratio": "loss fwd",
    "loss_reverse_ratio": "rev",
    "rtt_p50_ns": "RTT median",
    "cpu_tunnel_ratio": "CPU of the programs",
    "cpu_lab_ratio": "CPU, whole machine, above none",
}
"""Heads that would be too long for 80 columns."""
_STYLES: Final = {"confirmed": "green", "rejected": "red", "undecided": "yellow"}
_LONGEST_HEAD = 12
_MOST_COLUMNS = 4
_GAP: Final = 1
_PREDICTION_WIDTHS: Final = (22, 12, 12, 10, 9, 9)
_SHORT_NAMES: Final = 24
"""Columns that names keep where they are folded, if a line has them."""
_UNCLEAR: Final = "unclear"
_CPU: Final = "cpu_tunnel_ratio"
_MACHINE: Final = COSTS[_CPU]
"""Its column is what the whole machine used above no tunnel."""


def render(summary: Summary, width: int = 80) -> RenderableType:
    """Return the report as something rich can print in lines of so many columns."""
    manifest = summary.manifest
    parts: list[RenderableType] = [Text(manifest.title, style="bold")]
    if manifest.scale == "smoke":
        parts.append(Text(SMOKE, style="yellow"))
    for at, section in enumerate(summary.sections):
        for number, part in enumerate(section.parts):
            parts += [Text(), _figures(section.title, part, width)]
            if (at, number) == (0, 0):
                parts += [Text(line, style="dim") for line in summary.programs]
            if part.family.baselines and part.family.compared:
                parts += [Text(), _differences(part.family, width)]
    if summary.verdicts:
        parts += [Text(), _verdicts(summary)]
    if summary.prediction is not None:
        parts += [Text(), _prediction(summary.prediction)]
    parts += [Text(), _validity(summary)]
    if summary.findings:
        parts += [Text(), Text("Key findings", style="bold")]
        parts += [Text(f"• {finding}") for finding in summary.findings]
    # Last: where a terminal scrolls the answer is what stays in sight.
    if summary.uses:
        parts += [Text(), _brief(summary)]
    return Group(*parts)


def print_report(summary: Summary, console: Console) -> None:
    """Print it."""
    console.print(render(summary, console.width))


def _brief(summary: Summary) -> Table:
    title = "In short"
    if len(summary.uses) == 1:
        title += f": {summary.uses[0].title}"
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=None,
        show_header=False,
        padding=(0, _GAP, 0, 0),
    )
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for label, text in brief(summary):
        table.add_row(Text(label, style="bold"), Text(text))
    return table


def _verdicts(summary: Summary) -> Table:
    table = Table(
        title=Text("Hypotheses", style="bold"),
        title_justify="left",
        box=None,
        show_header=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column(no_wrap=True)
    table.add_column()
    for verdict in summary.verdicts:
        words = [verdict.hypothesis.claim or verdict.hypothesis.name, verdict.reason]
        words += [needed(verdict)] if needed(verdict) else []
        # Text: what comes from a study or a label may look like rich's markup.
        table.add_row(Text(verdict.outcome, style=_STYLES[verdict.outcome]), Text(": ".join(words)))
    return table


def _prediction(found: Prediction) -> Group:
    """Return a line for each point, with its figures below it: a column would be too narrow."""
    shown: list[Text | Table] = [
        Text(f"Measured and predicted ({found.source})", style="bold"),
        _row_of_prediction(HEADS[1:], "bold"),
    ]
    for name, rows in groupby(found.rows, key=lambda row: row.name):
        shown.append(Text(name))
        shown += [
            _row_of_prediction(row.cells[1:], "red" if row.within is False else "") for row in rows
        ]
    notes = [Text(note, style="dim") for note in found.notes]
    return Group(*shown, Text(found.said), *notes)


def _row_of_prediction(cells: Sequence[str], style: str) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for width in _PREDICTION_WIDTHS:
        table.add_column(width=width, overflow="fold")
    table.add_row(*(Text(cell, style=style) for cell in (f"  {cells[0]}", *cells[1:])))
    return table


def _figures(place: str, part: Part, width: int) -> Table:
    """Return the figures of a part; columns that a line has no room for are left out."""
    family = part.family
    shown = [m for m in family.metrics if m not in {_CPU, _MACHINE}][:_MOST_COLUMNS]
    costs = [cpu_cost(point, _CPU) for point in family.points]
    programs = [_CPU] if any(cost.of_programs for cost in costs) else []
    machine = [_MACHINE] if any(cost.of_machine for cost in costs) else []
    shown += programs + machine
    # Where a tunnel has no other CPU, that of the machine has room before further figures.
    only = any(cost.of_machine and not cost.of_programs for cost in costs)
    cpu = [shown.index(metric) for metric in programs + (machine if only else [])]

    def cells_of(point: PointEstimates) -> list[str]:
        figures = [_machine(point) if m == _MACHINE else cell(point, m) for m in shown]
        return [
            *(text.replace(" ", "") for text in figures),
            f"{point.valid}" + (f"+{point.invalid}✗" if point.invalid else ""),
        ]

    first = _first_head(family)
    rows = _rows(family, family.points, cells_of)
    heads = [*(_head(metric) for metric in shown), "n"]
    names = max(_wide(text) for text in (first, *(name.plain for name, _ in rows)))
    widths = [
        max(_wide(text) for text in (head, *(cells[at] for _, cells in rows if cells)))
        for at, head in enumerate(heads)
    ]
    names = _room(names, widths, width)
    kept = kept_columns(widths, width - names - _GAP, cpu=cpu)
    rows = [(name, [cells[at] for at in kept if cells]) for name, cells in rows]
    # The title is text: a label may have square brackets, which rich takes for markup.
    table = Table(
        title=Text(f"{place}: {part.title}", style="bold"),
        title_justify="left",
        caption=_caption(rows, cut=len(kept) < len(heads)),
        caption_justify="left",
        box=None,
        padding=(0, _GAP, 0, 0),
    )
    table.add_column(Text(first), overflow="fold", width=names)
    for at in kept:
        table.add_column(Text(heads[at]), justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(name, *cells)
    return table


def _machine(point: PointEstimates) -> str:
    """Return what the whole machine used above no tunnel, if that is distinct from nothing."""
    cost = cpu_cost(point, _CPU)
    if cost.of_machine is None:
        return NOTHING
    return f"+{figure(cost.of_machine)}" if cost.clear else _UNCLEAR


def _room(names: int, widths: Sequence[int], width: int) -> int:
    """Return how wide the column of names is: long ones are folded before a figure is left out."""
    left = width - sum(widths) - (len(widths) + 1) * _GAP
    if names <= left:
        return names
    # What is never left out: see ``kept_columns``.
    least = width - widths[0] - widths[-1] - 3 * _GAP
    return max(1, min(names, max(left, _SHORT_NAMES), least))


def kept_columns(widths: Sequence[int], room: int, *, cpu: Sequence[int]) -> list[int]:
    """Return the columns that a line has room for: count, first figure, CPU, then the others."""
    last = len(widths) - 1
    order = dict.fromkeys((last, 0, *cpu, *range(last)))
    kept: list[int] = []
    for at in order:
        room -= widths[at] + _GAP
        if room < 0 and len(kept) > 1:
            break
        kept.append(at)
    return sorted(kept)


def _caption(rows: Sequence[tuple[Text, Sequence[str]]], *, cut: bool) -> str | None:
    words = ["more columns in the HTML report"] if cut else []
    if any(_UNCLEAR in cells for _, cells in rows):
        words.append(f"{_UNCLEAR}: no clear difference from no tunnel")
    return "; ".join(words) or None


def _wide(text: str) -> int:
    return max(cell_len(line) for line in text.split("\n"))


def _differences(family: Family, width: int) -> RenderableType:
    table = Table(
        title="Difference from no tunnel (paired), with interval",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, _GAP, 0, 0),
    )
    compared = [point for point in family.points if point.differences]
    rows = _rows(
        family, compared, lambda p: [change(p.differences.get(m)) for m in family.compared]
    )
    first = _first_head(family)
    heads = ["\n".join(textwrap.wrap(METRICS[m].title, _LONGEST_HEAD)) for m in family.compared]
    widths = [
        max(_wide(text) for text in (head, *(cells[at] for _, cells in rows if cells)))
        for at, head in enumerate(heads)
    ]
    names = max(_wide(text) for text in (first, *(name.plain for name, _ in rows)))
    # The metric that decides stands first: it is the one that is never left out.
    while len(widths) > 1 and sum(widths) + (len(widths) + 1) * _GAP + _SHORT_NAMES > width:
        widths.pop()
    table.add_column(Text(first), overflow="fold", width=_room(names, [*widths, 0], width))
    for head in heads[: len(widths)]:
        table.add_column(Text(head), justify="right")
    for name, cells in rows:
        table.add_row(name, *cells[: len(widths)])
    return table


def _rows(
    family: Family,
    points: Sequence[PointEstimates],
    cells_of: Callable[[PointEstimates], Sequence[str]],
) -> list[tuple[Text, Sequence[str]]]:
    """Return name and cells of each point, those of a tunnel under a line with its name."""
    rows: list[tuple[Text, Sequence[str]]] = []
    last = ""
    for point in points:
        if family.headings and point.tunnel != last:
            rows.append((Text(point.tunnel, style="bold"), ()))
        rows.append((_name(family, point), cells_of(point)))
        last = point.tunnel
    return rows


def _first_head(family: Family) -> str:
    """Return the head of the names: below it a unit, where they differ in one number only."""
    below = ", ".join(family.headings)
    if len(family.varied) == 1:
        shown = parameter(family.varied[0])
        below = shown.unit or shown.title
    return f"tunnel\n  {below}"


def _name(family: Family, point: PointEstimates) -> Text:
    cells = " ".join(cell for cell in family.cells(point) if cell)
    if len(family.varied) == 1 and (ending := parameter(family.varied[0]).unit):
        cells = cells.removesuffix(f" {ending}")
    return Text(f"  {cells}" if family.headings else point.tunnel)


def _head(metric: str) -> str:
    title = _SHORT.get(metric, METRICS[metric].title)
    return "\n".join([*textwrap.wrap(title, _LONGEST_HEAD), unit(metric).name])


def _validity(summary: Summary) -> Text:
    text = Text()
    text.append(f"{summary.valid_trials} valid trials, {len(summary.invalid)} invalid")
    for entry in summary.invalid[:5]:
        text.append(f"\n  ✗ {entry.tunnel}, {entry.workload}: {'; '.join(entry.reasons)}")
    if len(summary.invalid) > 5:  # noqa: PLR2004 - as many as are shown
        text.append(f"\n  … and {len(summary.invalid) - 5} more in the HTML report")
    for point in unfinished(summary.points):
        text.append(f"\n  no valid trial of {point.tunnel}, {point.workload}", style="red")
    for label, reason in summary.manifest.skipped.items():
        text.append(f"\n  skipped {label}: {reason}", style="yellow")
    manifest = summary.manifest
    if manifest.wall_s and manifest.measuring_s:
        share = manifest.measuring_s / manifest.wall_s
        text.append(f"\n{percent(share)} of {manifest.wall_s:.0f} s was spent measuring")
        for place in time_by_place(summary.blocks):
            text.append(f"\n  {place.describe()}")
    return text
