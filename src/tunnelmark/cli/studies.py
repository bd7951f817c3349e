"""``tunnelmark studies``."""

import json

import click


@click.group(epilog="example: tunnelmark studies show quickstart > my-study.toml")
def studies() -> None:
    """List and show the built-in studies, and the schema of study files."""


@studies.command("list")
def list_command() -> None:
    """List the built-in studies with their titles."""
    from tunnelmark.study import list_studies, load_study  # noqa: PLC0415 - keeps --help quick

    for name in list_studies():
        click.echo(f"{name:20} {load_study(name).title}")


@studies.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a study file, to be copied and changed."""
    from tunnelmark.study import load_study  # noqa: PLC0415 - keeps --help quick

    click.echo(load_study(name).text, nl=False)


@studies.command()
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    from tunnelmark.study.schema import study_schema  # noqa: PLC0415 - keeps --help quick

    click.echo(json.dumps(study_schema(), indent=2, ensure_ascii=False))


@studies.command()
@click.argument("file")
@click.option("--scale", type=click.Choice(["smoke", "short", "full"]), default="full")
def check(file: str, scale: str) -> None:
    """Check a study file and say what it would run."""
    from tunnelmark.study import load_study  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.study.plan import blocks  # noqa: PLC0415 - likewise

    study = load_study(file, scale)
    plan = blocks(study)
    points = sum(len(block.points) for block in plan)
    least, most = study.precision.min_repeats, study.precision.max_repeats
    click.echo(
        f"{study.name}: {len(plan)} blocks, {points} points, {points * least} to {points * most} "
        f"trials"
    )
