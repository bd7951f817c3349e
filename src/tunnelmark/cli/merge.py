"""``tunnelmark merge``."""

from pathlib import Path

import click

_EPILOG = """
\b
examples:
  tunnelmark merge results/parts/* --into results/whole
  tunnelmark report results/whole

Merging a result a second time changes nothing. Results of another study, seed,
scale or format are refused before anything is written.
"""

_MOST_NAMED = 10


@click.command(epilog=_EPILOG)
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
)
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Result directory to merge into; created if it does not exist.",
)
def merge(*, directories: tuple[Path, ...], into: Path) -> None:
    """Merge the results of jobs of one study into one result."""
    from tunnelmark.execute.merge import merge as put_together  # noqa: PLC0415 - keeps --help quick

    merged = put_together(directories, into)
    click.echo(
        f"{into}: {merged.added} trial rows added, {merged.known} already there, "
        f"{merged.left_out} left out (from jobs that were run more than once)"
    )
    if merged.missing:
        names = " ".join(merged.missing[:_MOST_NAMED])
        more = "" if len(merged.missing) <= _MOST_NAMED else " …"
        click.echo(f"{len(merged.missing)} jobs of the study are missing: {names}{more}")
