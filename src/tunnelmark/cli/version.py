"""``tunnelmark version``."""

import click

from tunnelmark import __version__


@click.command(epilog="example: tunnelmark version")
def version() -> None:
    """Print the versions of Tunnelmark and its engine."""
    from tunnelmark.engine.binary import find_engine  # noqa: PLC0415 - only this command needs it
    from tunnelmark.lab.environment import engine_version  # noqa: PLC0415 - likewise

    click.echo(f"tunnelmark {__version__}")
    engine = find_engine()
    click.echo(f"tunnelmark-engine {engine_version(engine)} at {engine}")
