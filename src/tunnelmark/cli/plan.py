"""``tunnelmark plan``."""

import json

import click

_EPILOG = """
\b
examples:
  tunnelmark plan quickstart
  tunnelmark plan my-study.toml --json > jobs.jsonl
  tunnelmark plan my-study.toml --ids
  tunnelmark run my-study.toml --job b5d1c9f2a04e7
"""


@click.command(epilog=_EPILOG)
@click.argument("study")
@click.option(
    "--scale",
    type=click.Choice(["smoke", "short", "full"]),
    default="full",
    help="A smaller version of the study, if it has one; full is the study as written.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed to use instead of the study's."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each job in full as JSON, one per line."
)
@click.option("--ids", is_flag=True, help="Print only the job IDs, one per line, for scripts.")
def plan(*, study: str, scale: str, seed: int | None, as_json: bool, ids: bool) -> None:
    """List the jobs of STUDY and the expected time of each."""
    if as_json and ids:
        raise click.UsageError("--json and --ids are mutually exclusive")
    from dataclasses import replace  # noqa: PLC0415 - keeps --help quick

    from tunnelmark.model.job import to_json  # noqa: PLC0415 - likewise
    from tunnelmark.report.show import shown_duration  # noqa: PLC0415 - likewise
    from tunnelmark.run.time_left import expected_s  # noqa: PLC0415 - likewise
    from tunnelmark.study import load_study  # noqa: PLC0415 - likewise
    from tunnelmark.study.plan import jobs  # noqa: PLC0415 - likewise

    loaded = load_study(study, scale)
    found = jobs(loaded if seed is None else replace(loaded, seed=seed))
    if ids:
        click.echo("\n".join(job.job_id for job in found))
        return
    if as_json:
        for job in found:
            least, most = expected_s([job])
            click.echo(
                f'{{"job_id": {json.dumps(job.job_id)}, "expected_least_s": {least:.1f}, '
                f'"expected_most_s": {most:.1f}, "job": {to_json(job).decode()}}}'
            )
        return
    names = [
        (job.block.tunnel.label, job.block.link.label, job.block.device.label) for job in found
    ]
    widths = [max(map(len, column)) for column in zip(*names, strict=True)]
    for job, labels in zip(found, names, strict=True):
        place = "  ".join(label.ljust(width) for label, width in zip(labels, widths, strict=True))
        times = " to ".join(dict.fromkeys(map(shown_duration, expected_s([job]))))
        count = len(job.block.points)
        click.echo(f"{job.job_id}  {place}  {count} point{'s' * (count != 1)}, about {times}")
    total = " to ".join(dict.fromkeys(map(shown_duration, expected_s(found))))
    click.echo(f"{len(found)} job{'s' * (len(found) != 1)}, about {total} in sequence")
