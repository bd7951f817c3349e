"""``tunnelmark compare``."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tunnelmark.analysis.compare import Change, Comparison, Run

_EPILOG = """
\b
examples:
  tunnelmark compare results/office-monday results/office-tuesday
  tunnelmark compare A B --metric rtt_p50_ns --to-baseline
  tunnelmark compare LAB HOSTS --force --to-baseline
  tunnelmark compare A B --json > changes.json

Changes are from A to B. The list has only those that are clear, with a correction
for the number of comparisons, and relevant; --all lists every figure and marks
these with a star.
"""


@click.command(epilog=_EPILOG)
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Metric to compare; may be repeated.")
@click.option(
    "--to-baseline", is_flag=True, help="Compare the effect of the tunnel, not the figures."
)
@click.option(
    "--force",
    is_flag=True,
    help="Compare even if study, scale or place differ, for example a lab and real hosts.",
)
@click.option("--all", "every", is_flag=True, help="List all figures, not only what changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare(
    *,
    first: Path,
    second: Path,
    metrics: tuple[str, ...],
    to_baseline: bool,
    force: bool,
    every: bool,
    as_json: bool,
) -> None:
    """Compare two results: the environment first, then the figures."""
    from tunnelmark.analysis.compare import (  # noqa: PLC0415 - keeps --help quick
        compare as compared,
    )
    from tunnelmark.analysis.compare import headline_metrics  # noqa: PLC0415 - likewise
    from tunnelmark.model.metrics import METRICS  # noqa: PLC0415 - likewise
    from tunnelmark.study.messages import nearest  # noqa: PLC0415 - likewise

    for metric in metrics:
        if metric not in METRICS:
            raise click.UsageError(f"--metric {metric} is unknown{nearest(metric, METRICS)}")
    (one, own), (other, its) = _run(first), _run(second)
    found = compared(
        one,
        other,
        metrics or headline_metrics(one.trials, other.trials),
        confidence=max(own, its),
        to_baseline=to_baseline,
    )
    if found.unlike and not force:
        raise click.UsageError(
            f"the runs are not comparable: {'; '.join(found.unlike)}; --force compares them anyway"
        )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        _print(found, every=every)


def _run(path: Path) -> "tuple[Run, float]":
    from tunnelmark.report.compared import run_of  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    result = open_result(path)
    return run_of(result), result.manifest.confidence


def _print(found: "Comparison", *, every: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help quick
    from rich.text import Text  # noqa: PLC0415 - likewise

    console = Console() if Console().is_terminal else Console(width=100)
    for reason in found.unlike:
        console.print(Text(f"not comparable: {reason}", style="yellow"))
    if found.environment:
        console.print(Text("Environment", style="bold"))
        for name, one, other in found.environment:
            console.print(Text(f"  {name}: {one or 'nothing'} -> {other or 'nothing'}"))
    for title, names in (("A", found.only_first), ("B", found.only_second)):
        for name in names:
            console.print(Text(f"only in {title}: {name}"))
    for name in found.without_baseline:
        console.print(Text(f"left out: {name}"))
    shown = tuple(change for change in found.changes if every or change.clear)
    if shown:
        console.print(_table(shown))
    console.print(Text(found.said))


def _table(changes: "tuple[Change, ...]") -> object:
    from rich.table import Table  # noqa: PLC0415 - keeps --help quick
    from rich.text import Text  # noqa: PLC0415 - likewise

    from tunnelmark.report.compared import HEADS, row  # noqa: PLC0415 - likewise

    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in ("", *HEADS):
        table.add_column(head)
    for one in changes:
        table.add_row(*(Text(cell) for cell in ("*" if one.clear else "", *row(one))))
    return table
