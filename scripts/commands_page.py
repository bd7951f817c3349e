"""Renew docs/commands.md from the command line: python scripts/commands_page.py."""

from collections.abc import Iterator
from pathlib import Path

import click

from tunnelmark.cli.main import tunnelmark

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
_HEAD = """\
# Commands

What `--help` prints, for every command. `make pages` writes this page from the program; a test
compares the two. [The command line](cli.md) describes exit status, output and environment.
"""
_WIDTH = 78  # as click has it where there is no terminal


def main() -> None:
    """Write the page again."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for context in _contexts(click.Context(tunnelmark, info_name="tunnelmark")):
        depth = 2 if context.parent is None or context.parent.parent is None else 3
        lines += [f"{'#' * depth} `{context.command_path}`", "", "```text"]
        lines += [line.rstrip() for line in context.get_help().splitlines()]
        lines += ["```", ""]
    return "\n".join(lines)


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for a command and for each command in it, as deep as they go."""
    settings = tunnelmark.context_settings
    context.help_option_names = settings["help_option_names"]
    context.max_content_width = context.terminal_width = _WIDTH
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _contexts(click.Context(command, parent=context, info_name=name))


if __name__ == "__main__":
    main()
