"""``tunnelmark export``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tunnelmark.report.foreign.export import Form

_EPILOG = """
\b
examples:
  tunnelmark export results/NAME --samples parquet --into samples
  tunnelmark export results/NAME --samples csv --iperf3 --flent --into samples

index.csv in that folder names the trial of each file.
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files; created if it does not exist.",
)
@click.option(
    "--samples",
    "form",
    type=click.Choice(["parquet", "arrow", "csv"]),
    help="Per-packet records as tables, one per file.",
)
@click.option("--iperf3", is_flag=True, help="iperf3's JSON of TCP transfers and UDP loads.")
@click.option("--flent", is_flag=True, help="Delays and throughput over time as flent data files.")
def export(*, directory: Path, into: Path, form: "Form | None", iperf3: bool, flent: bool) -> None:
    """Export the samples of a result for other programs."""
    if form is None and not iperf3 and not flent:
        raise click.UsageError("give at least one of --samples, --iperf3 and --flent")
    from tunnelmark.report.foreign.export import export as write  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.report.foreign.export import refusals_as_text  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    done = write(open_result(directory), into, form=form, iperf3=iperf3, flent=flent)
    asked = {
        "packet tables": done.samples if form else None,
        "iperf3 reports": done.iperf3 if iperf3 else None,
        "flent files": done.flent if flent else None,
    }
    reported = ", ".join(f"{count} {what}" for what, count in asked.items() if count is not None)
    click.echo(f"{into}: {reported}")
    for form_of, refused in done.refused.items():
        click.echo(f"left out of {form_of}: {refusals_as_text(refused)}")
