"""``tunnelmark run``."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunnelmark.cli.duration import duration_s
from tunnelmark.cli.unread import tell
from tunnelmark.model.suites import SUITES, Suite

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
  tunnelmark run quickstart --suite trixie
  tunnelmark run my-study.toml --job b5d1c9f2a04e7 --results parts
  tunnelmark run quickstart --backend sim
  tunnelmark run my-study.toml --backend sim --cluster tcp://scheduler:8786
  tunnelmark run quickstart --json > events.jsonl
  nohup tunnelmark run modern-2026 --lines > modern.log &
  tunnelmark run --resume results/quickstart-20261121T055442Z-tma0b1c

Ctrl-C stops the run cleanly: valid trials are kept, and everything that the
run created is removed. The exit status is then 130. It is 6 if some points
have no valid trial, and 4 if a tunnel failed.
"""

_NO_VALID_TRIAL = 6
_TUNNEL_FAILED = 4
_INTERRUPTED = 130


@click.command(epilog=_EPILOG)
@click.argument("study", required=False)
@click.option(
    "--results",
    metavar="DIR|URL",
    default="results",
    show_default=True,
    help="Folder in which to create the result directory; a URL (s3://…) gets a copy of it.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Resume a run; valid trials are kept. Repeat --backend sim or --hosts FILE if the run was "
    "started with it.",
)
@click.option(
    "--job",
    metavar="ID",
    help="Run one job of the study, listed by `tunnelmark plan`, into its own result directory.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed to use instead of the study's."
)
@click.option(
    "--place",
    type=click.Choice(["auto", "local", "machine", "endpoints"]),
    default="auto",
    show_default=True,
    help="Where the lab runs: in namespaces here, in one virtual machine, or in one per endpoint.",
)
@click.option(
    "--suite",
    type=click.Choice(SUITES),
    help="Run all tunnels in virtual machines of this Debian release; default: the study's.",
)
@click.option(
    "--kernel",
    metavar="RELEASE",
    help="Use your own kernel in the virtual machines (see `tunnelmark vm build --kernel`).",
)
@click.option(
    "--backend",
    type=click.Choice(["lab", "sim"]),
    default="lab",
    show_default=True,
    help="Real programs in a lab, or models in virtual time (docs/simulation.md).",
)
@click.option(
    "--costs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with cost models for --backend sim; they override the built-in ones.",
)
@click.option(
    "--no-costs",
    is_flag=True,
    help="Simulate links and packets only, without the CPU time of tunnels.",
)
@click.option(
    "--hosts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Run between the two real hosts of an inventory (docs/hosts.md).",
)
@click.option(
    "--cluster",
    "cluster_at",
    metavar="ADDRESS",
    help="Run the jobs on a Dask cluster: tcp://HOST:8786, or local:4 (docs/jobs.md).",
)
@click.option(
    "--scale",
    type=click.Choice(["smoke", "short", "full"]),
    help="Run a smaller version of the study, if it has one; full is the study as written.",
)
@click.option(
    "--budget",
    metavar="TIME",
    callback=duration_s,
    help='Limit the run to this time, such as "30 min": first min_repeats of all points, then the '
    "least precise points.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="An earlier result whose scatter predicts which differences the run will detect.",
)
@click.option(
    "--samples/--no-samples",
    default=None,
    help="Keep per-packet records and captures. Without this option they are kept, in a "
    "simulation only those of trials with up to about 32,000 packets, and of each job only the "
    "first 400 trials, or the first repeat.",
)
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one per line.")
@click.option("--lines", is_flag=True, help="Show progress as plain lines, also in a pipe or file.")
@click.option("--quiet", is_flag=True, help="Suppress progress (default without a terminal).")
def run(
    *,
    study: str | None,
    results: str,
    resume: Path | None,
    job: str | None,
    seed: int | None,
    place: "Wanted",
    suite: Suite | None,
    kernel: str | None,
    backend: str,
    costs: Path | None,
    no_costs: bool,
    hosts: Path | None,
    cluster_at: str | None,
    scale: str | None,
    budget: float | None,
    like: Path | None,
    samples: bool | None,
    as_json: bool,
    lines: bool,
    quiet: bool,
) -> int:
    """Run STUDY: the name of a built-in study, or a file."""
    simulated = backend == "sim"
    _alone("--json, --lines and --quiet", as_json, lines, quiet)
    _alone("--hosts, --place and --backend sim", hosts is not None, place != "auto", simulated)
    if (study is None) == (resume is None):
        raise click.UsageError("give either STUDY or --resume DIR")
    _alone("--costs and --no-costs", costs is not None, no_costs)
    if (costs is not None or no_costs) and not simulated:
        raise click.UsageError("--costs and --no-costs are for --backend sim")
    if cluster_at is not None and (hosts or job or budget):
        raise click.UsageError("--cluster cannot be used with --hosts, --job or --budget")
    _of_machines(suite, kernel, elsewhere=hosts is not None or simulated or place == "local")
    if resume is not None:
        _unchanged(seed=seed, scale=scale, job=job, suite=suite, kernel=kernel)
    from tunnelmark.cli.copies import Copies  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.cli.progress import display  # noqa: PLC0415 - likewise
    from tunnelmark.cli.report import write_reports  # noqa: PLC0415 - likewise
    from tunnelmark.engine.binary import find_engine  # noqa: PLC0415 - likewise
    from tunnelmark.execute import Simulation, execute  # noqa: PLC0415 - likewise
    from tunnelmark.execute.cluster import execute_on  # noqa: PLC0415 - likewise
    from tunnelmark.execute.scheduler import parse_cluster  # noqa: PLC0415 - likewise
    from tunnelmark.hosts.inventory import load_inventory  # noqa: PLC0415 - likewise
    from tunnelmark.lab.rootless import stand  # noqa: PLC0415 - likewise
    from tunnelmark.report.summary import unfinished  # noqa: PLC0415 - likewise
    from tunnelmark.report.verdicts import as_event  # noqa: PLC0415 - likewise
    from tunnelmark.study import FULL, load_study  # noqa: PLC0415 - likewise

    inventory = None if hosts is None else load_inventory(hosts)
    on_line = inventory is not None
    loaded = None if study is None else load_study(study, scale or FULL, on_line=on_line)
    engine = find_engine()
    cluster = None if cluster_at is None else parse_cluster(cluster_at)
    if inventory is None and cluster is None and not simulated:
        stand(place)
    if loaded is not None and job is None and not (as_json or quiet or simulated):
        from tunnelmark.cli.foresight import foreseen  # noqa: PLC0415 - scipy.stats is slow to load

        for line in foreseen(loaded, budget_s=budget, like=like):
            _say(line)
    copies = Copies(results, _say)
    with display(as_json=as_json, quiet=quiet, lines=lines) as listener:
        carry_out = (
            partial(execute, job=job, budget_s=budget, hosts=inventory)
            if cluster is None
            else partial(execute_on, cluster)
        )
        ended = carry_out(
            loaded,
            results_dir=copies.folder,
            listener=copies.listening(listener),
            keep_samples=samples is not False,
            engine=engine,
            seed=seed,
            resume=resume,
            wanted=place,
            suite=suite,
            kernel=kernel,
            simulation=Simulation(costs, timeless=no_costs, all_samples=bool(samples))
            if simulated
            else None,
            say=_say,
        )
    summary = write_reports(Path(ended.directory), terminal=not as_json)
    copies.send_all()
    if as_json:
        for verdict in summary.verdicts:
            tell(json.dumps(as_event(verdict)))
    again = " --backend sim" * simulated + " --no-costs" * no_costs
    again += "".join(f" {k} {path}" for k, path in (("--hosts", hosts), ("--costs", costs)) if path)
    status = _status(ended, again, as_json=as_json)
    return status or (_NO_VALID_TRIAL if unfinished(summary.points) else 0)


def _unchanged(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"--{name} cannot be changed with --resume")


def _of_machines(suite: str | None, kernel: str | None, *, elsewhere: bool) -> None:
    if elsewhere and (suite or kernel):
        raise click.UsageError(
            "--suite and --kernel are for virtual machines, not for --hosts, --backend sim or "
            "--place local"
        )


def _say(step: str) -> None:
    tell(f"tunnelmark: {step}", err=True)


def _alone(names: str, *given: bool) -> None:
    if sum(given) > 1:
        raise click.UsageError(f"{names} are mutually exclusive")


def _status(ended: "RunEnded", again: str, *, as_json: bool) -> int:
    """Say why a run is not complete and return its exit status; 0 if it is.

    ``again`` are the options that a resume needs as well: elsewhere it would be refused.
    """
    if ended.outcome == "interrupted":
        if not as_json:
            tell(f"interrupted; resume with: tunnelmark run --resume {ended.directory}{again}")
        return _INTERRUPTED
    if ended.outcome == "failed":
        tell(f"tunnelmark: error: {ended.message}", err=True)
        return _TUNNEL_FAILED
    if ended.message and not as_json:
        tell(ended.message)
    return 0
