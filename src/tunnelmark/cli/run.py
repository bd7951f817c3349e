"""``tunnelmark run``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunnelmark.cli.duration import duration_s

if TYPE_CHECKING:
    from tunnelmark.lab.placement import Wanted
    from tunnelmark.run.events import RunEnded

_EPILOG = """
\b
examples:
  tunnelmark run quickstart
  tunnelmark run my-study.toml --results /srv/results
  tunnelmark run modern-2026 --scale smoke
  tunnelmark run office --budget "30 min"
  tunnelmark run quickstart --json > events.jsonl
  nohup tunnelmark run modern-2026 --lines > modern.log &
  tunnelmark run --resume results/quickstart-20261121T055442Z-tma0b1c

Ctrl-C ends the run in order: what was measured is kept, everything that was
made is removed. The exit status then is 130; 6 if some points have no valid
trial; 4 if a tunnel failed.
"""

_NO_VALID_TRIAL = 6
_TUNNEL_FAILED = 4
_INTERRUPTED = 130


@click.command(epilog=_EPILOG)
@click.argument("study", required=False)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder in which the result directory is made.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Go on with an interrupted run; nothing valid is measured again.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Instead of the study's seed.")
@click.option(
    "--place",
    type=click.Choice(["auto", "local", "machine", "endpoints"]),
    default="auto",
    show_default=True,
    help="Where labs stand: namespaces here, in a machine, or a machine per endpoint.",
)
@click.option(
    "--scale",
    type=click.Choice(["smoke", "short", "full"]),
    help="A smaller version of the study, if it has one; full is the study as it stands.",
)
@click.option(
    "--budget",
    metavar="TIME",
    callback=duration_s,
    help='Spend this time, such as "30 min": the least repeats for all, more where they tell most.',
)
@click.option(
    "--like",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="An earlier result that says how much figures scatter, for what the run will see.",
)
@click.option("--no-samples", is_flag=True, help="Keep no per-packet records and captures.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON, one a line.")
@click.option("--lines", is_flag=True, help="Progress as plain lines, also into a pipe or file.")
@click.option("--quiet", is_flag=True, help="No progress, only the result; so without a terminal.")
def run(
    *,
    study: str | None,
    results: Path,
    resume: Path | None,
    seed: int | None,
    place: "Wanted",
    scale: str | None,
    budget: float | None,
    like: Path | None,
    no_samples: bool,
    as_json: bool,
    lines: bool,
    quiet: bool,
) -> int:
    """Run STUDY: the name of a built-in study, or a file."""
    if (study is None) == (resume is None):
        raise click.UsageError("give either STUDY or --resume DIR")
    if as_json + lines + quiet > 1:
        raise click.UsageError("--json, --lines and --quiet exclude each other")
    for name, value in (("seed", seed), ("scale", scale)):
        if resume is not None and value is not None:
            raise click.UsageError(f"--{name} cannot be changed with --resume")
    from tunnelmark.cli.foresight import foreseen  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.cli.progress import display  # noqa: PLC0415 - likewise
    from tunnelmark.cli.report import write_reports  # noqa: PLC0415 - likewise
    from tunnelmark.engine.binary import find_engine  # noqa: PLC0415 - likewise
    from tunnelmark.lab.rootless import stand  # noqa: PLC0415 - likewise
    from tunnelmark.report.summary import unfinished  # noqa: PLC0415 - likewise
    from tunnelmark.report.verdicts import as_event  # noqa: PLC0415 - likewise
    from tunnelmark.run import execute  # noqa: PLC0415 - likewise
    from tunnelmark.study import FULL, load_study  # noqa: PLC0415 - likewise

    loaded = load_study(study, scale or FULL) if study is not None else None
    engine = find_engine()
    stand(place)
    if loaded is not None and not (as_json or quiet):
        for line in foreseen(loaded, budget_s=budget, like=like):
            click.echo(f"tunnelmark: {line}", err=True)
    with display(as_json=as_json, quiet=quiet, lines=lines) as listener:
        ended = execute(
            loaded,
            results_dir=results,
            listener=listener,
            keep_samples=not no_samples,
            engine=engine,
            seed=seed,
            resume=resume,
            budget_s=budget,
            wanted=place,
            say=lambda step: click.echo(f"tunnelmark: {step}", err=True),
        )
    summary = write_reports(Path(ended.directory), terminal=not as_json)
    if as_json:
        for verdict in summary.verdicts:
            click.echo(json.dumps(as_event(verdict)))
    return _status(ended, as_json=as_json) or (_NO_VALID_TRIAL if unfinished(summary.points) else 0)


def _status(ended: "RunEnded", *, as_json: bool) -> int:
    """Say why a run is not complete and return its exit status; 0 if it is."""
    if ended.outcome == "interrupted":
        if not as_json:
            click.echo(f"interrupted; go on with: tunnelmark run --resume {ended.directory}")
        return _INTERRUPTED
    if ended.outcome == "failed":
        click.echo(f"tunnelmark: error: {ended.message}", err=True)
        return _TUNNEL_FAILED
    if ended.message and not as_json:
        click.echo(ended.message)
    return 0
