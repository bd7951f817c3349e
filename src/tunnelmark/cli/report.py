"""``tunnelmark report``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunnelmark.model.faults import write, writing

if TYPE_CHECKING:
    from tunnelmark.report.summary import Summary
    from tunnelmark.store import Result

_EPILOG = """
\b
examples:
  tunnelmark report results/quickstart-20261121T055442Z-tma0b1c
  tunnelmark report DIR --format csv > figures.csv
  tunnelmark report DIR --format html -o report.html
  tunnelmark report DIR --format json | jq .decisions
  tunnelmark report DIR --format latex -o tables.tex --figures figures
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "html", "markdown", "csv", "latex", "json"]),
    default="terminal",
    show_default=True,
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File instead of standard output."
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder in which every figure is written as SVG and PDF.",
)
def report(*, directory: Path, form: str, output: Path | None, figures: Path | None) -> None:
    """Report on the run in DIRECTORY."""
    from tunnelmark.report.document import to_json  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.report.html import to_html  # noqa: PLC0415 - likewise
    from tunnelmark.report.latex import to_latex  # noqa: PLC0415 - likewise
    from tunnelmark.report.summary import summarise  # noqa: PLC0415 - likewise
    from tunnelmark.report.tables import to_csv, to_markdown  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    result = open_result(directory)
    summary = summarise(result)
    if figures is not None:
        _draw(summary, result, figures)
    if form == "terminal":
        _print(summary, output)
        return
    text = {
        "html": lambda: to_html(summary, result),
        "markdown": lambda: to_markdown(summary),
        "csv": lambda: to_csv(summary),
        "latex": lambda: to_latex(summary),
        "json": lambda: to_json(summary),
    }[form]()
    if output is None:
        click.echo(text, nl=False)
    else:
        write(output, text.encode())


def write_reports(directory: Path, *, terminal: bool) -> "Summary":
    """Write all reports of a run into its directory; print the table and where the rest is."""
    from tunnelmark.report.html import to_html  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.report.summary import summarise  # noqa: PLC0415 - likewise
    from tunnelmark.report.tables import to_csv, to_markdown  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    result = open_result(directory)
    summary = summarise(result)
    folder = directory / "report"
    page = folder / "report.html"
    write(page, to_html(summary, result).encode())
    write(folder / "report.md", to_markdown(summary).encode())
    write(folder / "report.csv", to_csv(summary).encode())
    if terminal:
        _print(summary, None)
        click.echo(f"\nHTML report: {page}")
    return summary


def _draw(summary: "Summary", result: "Result", folder: Path) -> None:
    from tunnelmark.report.drawn import write_figures  # noqa: PLC0415 - matplotlib is slow to load
    from tunnelmark.report.html import charts_of  # noqa: PLC0415 - keeps --help quick

    with writing(folder):
        keys = write_figures(charts_of(summary, result), folder)
    click.echo(f"{len(keys)} figures as SVG and PDF in {folder}", err=True)


def _print(summary: "Summary", output: Path | None) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help quick

    from tunnelmark.report.terminal import print_report  # noqa: PLC0415 - likewise

    if output is not None:
        with writing(output), output.open("w", encoding="utf-8") as file:
            print_report(summary, Console(file=file, width=80, no_color=True))
        return
    console = Console()
    # A pipe has no width; 80 columns is what a reader of the file will have.
    print_report(summary, console if console.is_terminal else Console(width=80))
