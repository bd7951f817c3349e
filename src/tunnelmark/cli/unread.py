"""Output that nobody reads any more (``| head``): a command that does more than print goes on."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click


def is_unread() -> bool:
    """Say whether nobody reads a standard stream: a pipe that broke may be another one."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a stream that stands in for one may have no descriptor
            poll.register(stream.fileno(), 0)
    return bool(poll.poll(0))


def tell(text: str, *, err: bool = False) -> None:
    """Print a line, as ``click.echo`` does; one that cannot be written is lost."""
    with unread_is_fine():
        click.echo(text, err=err)


@contextmanager
def unread_is_fine() -> Iterator[None]:
    """Go on behind this if its output cannot be written any more: what follows goes nowhere."""
    try:
        yield
    except OSError:  # nobody reads it, or the disk under it is full
        let_go()


def let_go() -> None:
    """Let what cannot be written to the standard streams go nowhere, now and from now on.

    Also what they still hold: it would be written once more when the process ends.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):  # a stream that stands in for one may have no descriptor
                _lead_nowhere(stream.fileno())
                stream.flush()


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)
