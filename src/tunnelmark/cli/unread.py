"""Output that nobody reads any more (``| head``): a command that does more than print goes on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click


class UnreadError(Exception):
    """A command has printed what nobody reads; ``click`` itself would end the process."""


@contextmanager
def unread_is_an_error() -> Iterator[None]:
    """Raise ``UnreadError`` for a pipe that broke."""
    try:
        yield
    except BrokenPipeError as error:
        raise UnreadError from error


def tell(text: str, *, err: bool = False) -> None:
    """Print a line, as ``click.echo`` does; one that nobody reads is lost."""
    with unread_is_fine():
        click.echo(text, err=err)


@contextmanager
def unread_is_fine() -> Iterator[None]:
    """Go on behind this if its output is not read any more; what follows of it goes nowhere."""
    try:
        yield
    except BrokenPipeError:
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
