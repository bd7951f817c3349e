"""``tunnelmark clean``."""

import click


@click.command(epilog="example: tunnelmark clean --dry-run")
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
def clean(*, dry_run: bool) -> None:
    """Remove what killed runs left behind, and nothing else."""
    from tunnelmark.lab.clean import clean as remove  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.lab.clean import find_leftovers, release  # noqa: PLC0415 - likewise

    leftovers = find_leftovers()
    if not leftovers:
        click.echo("nothing to remove")
        return
    if dry_run:
        for leftover in leftovers:
            click.echo(f"{leftover.run_id}: {leftover.directory}")
            for thing in leftover.things:
                click.echo(f"  {thing}")
        release(leftovers)
        return
    for line in remove(leftovers):
        click.echo(f"removed {line}")
