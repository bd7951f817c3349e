"""``tunnelmark report``."""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunnelmark.cli.unread import tell, unread_is_fine
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
  tunnelmark report DIR --format json | jq .uses
  tunnelmark report DIR --format parquet -o figures.parquet
  tunnelmark report s3://bucket/results/NAME
  tunnelmark report DIR --beside results/quickstart-20261122T190815Z-tm6f84e
  tunnelmark report DIR --format latex -o tables.tex --figures figures
"""


@click.command(epilog=_EPILOG)
@click.argument("directory")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "html", "markdown", "csv", "parquet", "latex", "json"]),
    default="terminal",
    show_default=True,
    help="What to write: text for people, a page, or a table or document for programs.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write every figure as SVG and PDF into this folder.",
)
@click.option(
    "--plotly",
    "where",
    type=click.Choice(["embedded", "beside"]),
    default="embedded",
    show_default=True,
    help="Put the script for HTML figures into the page, or once beside all pages of a folder.",
)
@click.option(
    "--beside",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A simulated result of the same study: its figures beside the measured ones "
    "(terminal, html and json).",
)
def report(
    *,
    directory: str,
    form: str,
    output: Path | None,
    figures: Path | None,
    where: str,
    beside: Path | None,
) -> None:
    """Report on the run in DIRECTORY.

    DIRECTORY may be a URL, such as s3://bucket/results/NAME.
    """
    from tunnelmark.hosts.ledger import Ledger  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.store.remote import fetch, is_url, named_by_url  # noqa: PLC0415 - likewise

    if where == "beside" and (form != "html" or output is None):
        raise click.UsageError("--plotly beside needs --format html and a file: -o FILE")
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("--format parquet is binary: name a file with -o")
    if beside is not None and form not in {"terminal", "html", "json"}:
        raise click.UsageError(f"--beside is for terminal, html and json, not for {form}")
    with ExitStack() as closing:
        folder = Path(directory)
        if is_url(directory):
            # What is copied goes also if this is killed.
            folder = closing.enter_context(Ledger()).work_dir
            fetch(directory, folder)
            closing.enter_context(named_by_url(directory, folder))
        _report(folder, form=form, output=output, figures=figures, where=where, beside=beside)


def _report(
    directory: Path,
    *,
    form: str,
    output: Path | None,
    figures: Path | None,
    where: str,
    beside: Path | None,
) -> None:
    from tunnelmark.report.summary import summarise  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    result = open_result(directory)
    summary = summarise(result)
    if beside is not None:
        from tunnelmark.report.predicted import predict  # noqa: PLC0415 - few need it

        summary = replace(summary, prediction=predict(result, open_result(beside)))
    if figures is not None:
        _draw(summary, result, figures)
    if form == "terminal":
        _print(summary, output)
        return
    data = _page(summary, result, where) if form == "html" else _document(summary, form)
    if output is None:
        click.echo(data, nl=False)
        return
    write(output, data)
    if where == "beside":
        from tunnelmark.report import plotly  # noqa: PLC0415 - few need it

        write(output.parent / plotly.FILE_NAME, plotly.script())


def _page(summary: "Summary", result: "Result", where: str) -> bytes:
    from tunnelmark.report import plotly  # noqa: PLC0415 - each form loads its own
    from tunnelmark.report.html import to_html  # noqa: PLC0415 - likewise

    src = plotly.FILE_NAME if where == "beside" else None
    return to_html(summary, result, plotly_src=src).encode()


def _document(summary: "Summary", form: str) -> bytes:
    from tunnelmark.report import tables  # noqa: PLC0415 - each form loads its own
    from tunnelmark.report.document import to_json  # noqa: PLC0415 - likewise
    from tunnelmark.report.latex import to_latex  # noqa: PLC0415 - likewise

    if form == "parquet":
        return tables.to_parquet(summary)
    forms = {
        "markdown": tables.to_markdown,
        "csv": tables.to_csv,
        "latex": to_latex,
        "json": to_json,
    }
    return forms[form](summary).encode()


def write_reports(directory: Path, *, terminal: bool) -> "Summary":
    """Write all reports of a run into its directory; print the table and the path of the rest."""
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
        with unread_is_fine():
            _print(summary, None)
        tell(f"\nHTML report: {page}")
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
    if not console.is_terminal:
        # A pipe has no width; 80 columns is what a reader of the file will have.
        console = Console(width=80)
    # Where nobody reads, rich would end the whole command.
    with console.capture() as printed:
        print_report(summary, console)
    click.echo(printed.get(), nl=False)
