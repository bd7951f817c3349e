"""A report for a terminal of 80 columns."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tunnelmark.analysis.cpu_cost import cpu_cost
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.block import time_by_place
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.parameters import parameter
from tunnelmark.report.sections import Part
from tunnelmark.report.show import NOTHING, cell, change, figure, unit
from tunnelmark.report.summary import Summary, unfinished
from tunnelmark.report.tables import SMOKE
from tunnelmark.report.verdicts import WORDS, needed

_SHORT: Final = {
    "goodput_bit_s": "goodput",
    "loss_forward_ratio": "loss fwd",
    "loss_reverse_ratio": "rev",
    "rtt_p50_ns": "RTT median",
    "cpu_tunnel_ratio": "CPU",
}
"""Heads that would be too long for 80 columns."""
_STYLES: Final = {"confirmed": "green", "rejected": "red", "undecided": "yellow"}
_LONGEST_HEAD = 12
_MOST_COLUMNS = 4
_GAP: Final = 1
_CPU: Final = "cpu_tunnel_ratio"
_ABOVE: Final = "+"
"""Before CPU that is the whole machine's above no tunnel."""


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
                parts += [Text(), _differences(part.family)]
    if summary.verdicts:
        parts += [Text(), _verdicts(summary)]
    parts += [Text(), _validity(summary)]
    # Last: where a terminal scrolls the answer is what stays in sight.
    if summary.findings:
        parts += [Text(), Text("Key findings", style="bold")]
        parts += [Text(f"• {finding}") for finding in summary.findings]
    return Group(*parts)


def print_report(summary: Summary, console: Console) -> None:
    """Print it."""
    console.print(render(summary, console.width))


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
        table.add_row(
            Text(WORDS[verdict.outcome], style=_STYLES[verdict.outcome]), Text(": ".join(words))
        )
    return table


def _figures(place: str, part: Part, width: int) -> Table:
    """Return the figures of a part; columns that a line has no room for are left out."""
    family = part.family
    shown = [m for m in family.metrics if m != _CPU][:_MOST_COLUMNS]
    if any(cpu_cost(point, _CPU) is not None for point in family.points):
        shown.append(_CPU)

    def cells_of(point: PointEstimates) -> list[str]:
        figures = [_cpu(point) if m == _CPU else cell(point, m).replace(" ", "") for m in shown]
        return [*figures, f"{point.valid}" + (f"+{point.invalid}✗" if point.invalid else "")]

    first = _first_head(family)
    rows = _rows(family, family.points, cells_of)
    heads = [*(_head(metric) for metric in shown), "n"]
    names = max(_wide(text) for text in (first, *(name.plain for name, _ in rows)))
    widths = [
        max(_wide(text) for text in (head, *(cells[at] for _, cells in rows if cells)))
        for at, head in enumerate(heads)
    ]
    kept = kept_columns(
        widths, width - names - _GAP, cpu=shown.index(_CPU) if _CPU in shown else None
    )
    # The title is text: a label may have square brackets, which rich takes for markup.
    table = Table(
        title=Text(f"{place}: {part.title}", style="bold"),
        title_justify="left",
        caption=_caption(family, cut=len(kept) < len(heads)),
        caption_justify="left",
        box=None,
        padding=(0, _GAP, 0, 0),
    )
    table.add_column(Text(first), no_wrap=True)
    for at in kept:
        table.add_column(Text(heads[at]), justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(name, *(cells[at] for at in kept if cells))
    return table


def _cpu(point: PointEstimates) -> str:
    """Return the CPU of a tunnel; nothing where it cannot be told apart from no tunnel's."""
    cost = cpu_cost(point, _CPU)
    if cost is None or not cost.clear:
        return NOTHING
    return ("" if cost.of_programs else _ABOVE) + figure(cost.estimate).replace(" ", "")


def kept_columns(widths: Sequence[int], room: int, *, cpu: int | None) -> list[int]:
    """Return the columns that a line has room for: count, first figure, CPU, then the others."""
    last = len(widths) - 1
    order = dict.fromkeys((last, 0, *([] if cpu is None else [cpu]), *range(last)))
    kept: list[int] = []
    for at in order:
        room -= widths[at] + _GAP
        if room < 0 and len(kept) > 1:
            break
        kept.append(at)
    return sorted(kept)


def _caption(family: Family, *, cut: bool) -> str | None:
    costs = [cpu_cost(point, _CPU) for point in family.points]
    above = any(cost is not None and not cost.of_programs for cost in costs)
    words = ["more columns in the HTML report"] if cut else []
    words += [f"CPU {_ABOVE}: of the whole machine above no tunnel"] if above else []
    return "; ".join(words) or None


def _wide(text: str) -> int:
    return max(cell_len(line) for line in text.split("\n"))


def _differences(family: Family) -> RenderableType:
    table = Table(
        title="Difference to no tunnel, paired, with its interval",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, _GAP, 0, 0),
    )
    table.add_column(Text(_first_head(family)), no_wrap=True)
    for metric in family.compared:
        table.add_column(Text(METRICS[metric].title), justify="right")
    compared = [point for point in family.points if point.differences]
    for name, cells in _rows(
        family, compared, lambda p: [change(p.differences.get(m)) for m in family.compared]
    ):
        table.add_row(name, *cells)
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
        text.append(f"\n{share:.0%} of {manifest.wall_s:.0f} s was spent measuring")
        for place in time_by_place(summary.blocks):
            text.append(f"\n  {place.describe()}")
    return text
