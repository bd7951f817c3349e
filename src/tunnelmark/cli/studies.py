"""``tunnelmark studies``."""

import json
from pathlib import Path

import click

from tunnelmark.cli.duration import duration_s

_EPILOG = """
\b
examples:
  tunnelmark studies show quickstart > my-study.toml
  tunnelmark studies check my-study.toml
  tunnelmark studies check modern-2026 --scale short
  tunnelmark studies check my-study.toml --budget "30 min"
"""
_CHECK = """
\b
examples:
  tunnelmark studies check my-study.toml
  tunnelmark studies check modern-2026 --scale short
  tunnelmark studies check my-study.toml --budget "30 min" --like results/NAME
"""
_SHOW = "example: tunnelmark studies show quickstart > my-study.toml"
_SCHEMA = "example: tunnelmark studies schema > study.schema.json"


@click.group(epilog=_EPILOG)
def studies() -> None:
    """List, show and check studies, and print their JSON Schema."""


@studies.command("list", epilog="example: tunnelmark studies list")
def list_command() -> None:
    """List the built-in studies with their titles."""
    from tunnelmark.study import list_studies, load_study  # noqa: PLC0415 - keeps --help quick

    for name in list_studies():
        click.echo(f"{name:20} {load_study(name).title}")


@studies.command(epilog=_SHOW)
@click.argument("name")
def show(name: str) -> None:
    """Print a study file, to copy and change."""
    from tunnelmark.study import load_study  # noqa: PLC0415 - keeps --help quick

    click.echo(load_study(name).text, nl=False)


@studies.command(epilog=_SCHEMA)
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    from tunnelmark.study.schema import study_schema  # noqa: PLC0415 - keeps --help quick

    click.echo(json.dumps(study_schema(), indent=2, ensure_ascii=False))


@studies.command(epilog=_CHECK)
@click.argument("file")
@click.option(
    "--scale",
    type=click.Choice(["smoke", "short", "full"]),
    default="full",
    help="A smaller version of the study, if it has one; full is the study as written.",
)
@click.option(
    "--budget", metavar="TIME", callback=duration_s, help='Time to spend, such as "30 min".'
)
@click.option(
    "--like",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="An earlier result whose scatter predicts which differences the run will detect.",
)
def check(*, file: str, scale: str, budget: float | None, like: Path | None) -> None:
    """Check a study before its run.

    Print what would run, for how long, and which differences the run can detect.
    """
    from tunnelmark.cli.foresight import foreseen  # noqa: PLC0415 - likewise
    from tunnelmark.cli.progress import trials  # noqa: PLC0415 - likewise
    from tunnelmark.report.show import shown_duration  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.run.time_left import expected_s  # noqa: PLC0415 - likewise
    from tunnelmark.study import load_study  # noqa: PLC0415 - likewise
    from tunnelmark.study.plan import jobs  # noqa: PLC0415 - likewise

    study = load_study(file, scale)
    plan = jobs(study)
    points = sum(len(job.block.points) for job in plan)
    least, most = study.precision.min_repeats, study.precision.max_repeats
    times = " to ".join(dict.fromkeys(shown_duration(seconds) for seconds in expected_s(plan)))
    click.echo(
        f"{study.name}: {len(plan)} block{'s' * (len(plan) != 1)}, {points} points, "
        f"{trials(points * least, points * most)}, about {times}"
    )
    for line in foreseen(study, budget_s=budget, like=like):
        click.echo(line)
