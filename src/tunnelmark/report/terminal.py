"""A report for a terminal of 80 columns."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.report.show import change, figure, unit
from tunnelmark.report.summary import Summary, unfinished

_COLUMNS = (
    ("goodput_bit_s", "goodput"),
    ("loss_forward_ratio", "loss fwd"),
    ("loss_reverse_ratio", "rev"),
    ("rtt_p50_ns", "RTT median"),
    ("cpu_tunnel_ratio", "CPU"),
)


def render(summary: Summary) -> RenderableType:
    """Return the report as something rich can print."""
    manifest = summary.manifest
    parts: list[RenderableType] = [Text(manifest.title, style="bold")]
    for link, device in sorted({(p.link, p.device) for p in summary.points}):
        points = [p for p in summary.points if (p.link, p.device) == (link, device)]
        parts += [Text(), _figures(points, link, device), Text(), _differences(points)]
    if summary.findings:
        parts += [Text(), Text("What holds", style="bold")]
        parts += [Text(f"• {finding}") for finding in summary.findings]
    parts += [Text(), _validity(summary)]
    return Group(*parts)


def print_report(summary: Summary, console: Console) -> None:
    """Print it."""
    console.print(render(summary))


def _figures(points: list[PointEstimates], link: str, device: str) -> Table:
    where = link if device == "host" else f"{link}, {device}"
    table = Table(
        title=where, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("tunnel\n  byte", no_wrap=True)
    for metric, title in _COLUMNS:
        table.add_column(f"{title}\n{unit(metric).name}", justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    last = ""
    for point in points:
        count = f"{point.valid}" + (f"+{point.invalid}✗" if point.invalid else "")
        size = "" if point.payload_bytes is None else str(point.payload_bytes)
        figures = [figure(point.estimates.get(m)).replace(" ", "") for m, _ in _COLUMNS]
        if point.tunnel != last:
            table.add_row(Text(point.tunnel, style="bold"))
        table.add_row(f"  {size}", *figures, count)
        last = point.tunnel
    return table


def _differences(points: list[PointEstimates]) -> RenderableType:
    rows = [point for point in points if point.differences]
    if not rows:
        return Text()
    table = Table(
        title="Difference to no tunnel, paired, with its interval",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("tunnel\n  byte", no_wrap=True)
    table.add_column("goodput", justify="right")
    table.add_column("RTT median", justify="right")
    last = ""
    for point in rows:
        size = "" if point.payload_bytes is None else str(point.payload_bytes)
        if point.tunnel != last:
            table.add_row(Text(point.tunnel, style="bold"))
        table.add_row(
            f"  {size}",
            change(point.differences.get("goodput_bit_s")),
            change(point.differences.get("rtt_p50_ns")),
        )
        last = point.tunnel
    return table


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
    return text
