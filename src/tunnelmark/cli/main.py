"""The command ``tunnelmark``: arguments in, exit status out; no traceback reaches a user."""

import os
import sys
import tempfile
import traceback

import click
from click.shell_completion import shell_complete

from tunnelmark import __version__
from tunnelmark.cli.lazy import LazyGroup
from tunnelmark.cli.unread import is_unread, let_go, tell, unread_is_fine
from tunnelmark.model.errors import TunnelmarkError

UNEXPECTED = 1
USAGE = 2
INTERRUPTED = 130
_COMPLETE = "_TUNNELMARK_COMPLETE"

_EPILOG = """
\b
examples:
  tunnelmark doctor                   what this computer can run
  tunnelmark run quickstart           run a built-in study
  tunnelmark run my-study.toml        run your own
  tunnelmark report results/NAME      print the report of a run again
  tunnelmark compare results/A results/B   what changed between two runs

\b
exit status:
  0  done
  1  unexpected error (the message names the file with the details)
  2  the command line or the study is wrong
  3  this computer lacks a program, privilege or feature
  4  a tunnel failed
  5  a result directory cannot be read or written
  6  the run ended, but some points have no valid trial
  130  interrupted; resume with: tunnelmark run --resume DIR, and again
       --backend sim or --hosts FILE if the run was started with it
"""


@click.group(
    cls=LazyGroup,
    commands_in={
        "run": "tunnelmark.cli.run:run",
        "plan": "tunnelmark.cli.plan:plan",
        "merge": "tunnelmark.cli.merge:merge",
        "report": "tunnelmark.cli.report:report",
        "fit": "tunnelmark.cli.fit:fit",
        "export": "tunnelmark.cli.export:export",
        "studies": "tunnelmark.cli.studies:studies",
        "doctor": "tunnelmark.cli.doctor:doctor",
        "hosts": "tunnelmark.cli.hosts:hosts",
        "clean": "tunnelmark.cli.clean:clean",
        "overhead": "tunnelmark.cli.overhead:overhead",
        "analyse": "tunnelmark.cli.analyse:analyse",
        "compare": "tunnelmark.cli.compare:compare",
        "serve": "tunnelmark.cli.serve:serve",
        "audit": "tunnelmark.cli.audit:audit",
        "vm": "tunnelmark.cli.vm:vm",
        "version": "tunnelmark.cli.version:version",
    },
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="tunnelmark")
def tunnelmark() -> None:
    """Measure what a VPN tunnel does to traffic, on a link, on a device."""


def main() -> None:
    """Run the command line and exit; or complete one, as click and its shells agree."""
    if how := os.environ.get(_COMPLETE):
        sys.exit(shell_complete(tunnelmark, {}, "tunnelmark", _COMPLETE, how))
    sys.exit(call(sys.argv[1:]))


def call(arguments: list[str]) -> int:
    """Run one command line and return its exit status."""
    try:
        # Not click's own ``main``: it ends the process when any pipe breaks.
        with tunnelmark.make_context("tunnelmark", [*arguments]) as context:
            result = tunnelmark.invoke(context)
    except click.exceptions.Exit as end:
        result = end.exit_code
    except TunnelmarkError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        with unread_is_fine():
            error.show()
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        tell("", err=True)  # behind the ^C of a terminal
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the last place where anything can be caught
        if isinstance(error, BrokenPipeError) and is_unread():
            return _unread(arguments)
        return _fail(f"unexpected {type(error).__name__}: {error}{_saved()}", UNEXPECTED)
    return result if isinstance(result, int) else 0


_PRINTING = frozenset(
    {
        "analyse",
        "audit",
        "compare",
        "doctor",
        "overhead",
        "plan",
        "report",
        "studies",
        "version",
    }
)
"""Commands whose reader may stop at any time."""
_HELP = frozenset({"-h", "--help", "--version"})


def _unread(arguments: list[str]) -> int:
    let_go()
    if not arguments or arguments[0] in _PRINTING or not _HELP.isdisjoint(arguments):
        return 0
    return _fail("broke off: nobody reads its output any more", UNEXPECTED)


def _fail(message: str, status: int) -> int:
    tell(f"tunnelmark: error: {message}", err=True)
    return status


def _saved() -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tunnelmark-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(traceback.format_exc())
    except OSError:
        return ""
    return f" (details in {file.name})"
