"""``tunnelmark analyse``."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tunnelmark.analysis.curves import Curve

_EPILOG = """
\b
examples:
  tunnelmark analyse results/munasinghe-2005-20261121T055442Z-tma0b1c
  tunnelmark analyse DIR --metric goodput_bit_s --json

docs/statistics.md explains every method.
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Metric to analyse; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def analyse(*, directory: Path, metrics: tuple[str, ...], as_json: bool) -> None:
    """Find where curves bend, what drifted and which factors matter.

    It also lists what correlates with CPU use.
    """
    from tunnelmark.analysis.compare import headline_metrics  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.analysis.explore import explore  # noqa: PLC0415 - likewise
    from tunnelmark.analysis.strata import set_apart  # noqa: PLC0415 - likewise
    from tunnelmark.model.metrics import METRICS  # noqa: PLC0415 - likewise
    from tunnelmark.report.verdicts import moments_of  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise
    from tunnelmark.study.messages import nearest  # noqa: PLC0415 - likewise

    for metric in metrics:
        if metric not in METRICS:
            raise click.UsageError(f"--metric {metric} is unknown{nearest(metric, METRICS)}")
    result = open_result(directory)
    trials = set_apart(result.trials(), result.blocks.values())
    wanted = metrics or headline_metrics(trials)
    confidence, moments = result.manifest.confidence, moments_of(result)
    found = explore(trials, wanted, confidence=confidence, moments=moments)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=1))
        return
    for title, lines in (
        ("Drift of the baseline over the run", _drifts(found.drift)),
        ("Curves", (line for curve in found.curves for line in _curve(curve))),
        (
            "What correlates with CPU use, by rank correlation over the points",
            _together(found.correlations),
        ),
        ("Which factors matter", _factorial(found.factorial)),
    ):
        shown = list(lines)
        click.echo(title)
        for line in shown or ["nothing to report"]:
            click.echo(f"  {line}")


def _drifts(found: Sequence[Any]) -> Iterator[str]:
    from tunnelmark.analysis.units import change_as_text  # noqa: PLC0415 - keeps --help quick

    for one in found:
        quantity = "ratio" if one.relative else "difference"
        value, low, high = (
            change_as_text(v, one.metric, quantity) for v in (one.change, one.low, one.high)
        )
        said = "drifted" if one.reported else "no relevant drift"
        yield f"{_title(one.metric)}: {value} [{low}, {high}] in {one.span_s:.0f} s: {said}"


def _curve(curve: "Curve") -> Iterator[str]:
    from tunnelmark.model.quantity import percent  # noqa: PLC0415 - keeps --help quick

    bend = curve.knee
    if bend is not None and bend.reported:
        head = f"{curve.place}: {_title(curve.metric)} over {curve.along}"
        yield f"{head}: bends at {bend.at:g} [{bend.low:g}, {bend.high:g}] (p {bend.p:.3f})"
    for one in curve.crossings:
        if one.after is None:
            continue
        start = "the start" if one.before is None else f"{one.before:g}"
        yield (
            f"{curve.place}: {_title(one.metric)} crosses {percent(one.limit, 1)} between {start} "
            f"and {one.after:g} of {curve.along}"
        )


def _together(found: Sequence[Any]) -> Iterator[str]:
    for one in found:
        rho = one.correlation
        if not rho.reported:
            continue
        yield (
            f"{one.place}: {_title(one.metric)} and {_title(one.cpu)}: rho {rho.rho:+.2f} "
            f"[{rho.low:+.2f}, {rho.high:+.2f}] over {rho.points} points"
        )


def _factorial(found: Sequence[Any]) -> Iterator[str]:
    from tunnelmark.model.quantity import percent  # noqa: PLC0415 - keeps --help quick

    for one in found:
        for effect in sorted(one.effects, key=lambda e: -e.partial_omega_squared):
            if not effect.reported:
                continue
            yield (
                f"{_title(one.metric)}, {one.workload}: {' with '.join(effect.factors)} explains "
                f"{percent(effect.partial_omega_squared)} (F {effect.f:.1f} with "
                f"{effect.freedom:.0f} and {one.residual_freedom:.0f}, p {effect.p:.2g})"
            )


def _title(metric: str) -> str:
    from tunnelmark.model.metrics import METRICS  # noqa: PLC0415 - keeps --help quick

    return METRICS[metric].title
