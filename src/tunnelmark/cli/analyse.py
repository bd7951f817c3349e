"""``tunnelmark analyse``."""

import dataclasses
import json
from collections.abc import Iterator
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
@click.option("--metric", "metrics", multiple=True, help="May be given several times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def analyse(*, directory: Path, metrics: tuple[str, ...], as_json: bool) -> None:
    """Tell where curves bend, what goes with the CPU, which factor matters, what drifted."""
    from tunnelmark.analysis.cells import cells_of  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.analysis.compare import headline_metrics  # noqa: PLC0415 - likewise
    from tunnelmark.analysis.curves import curves, together  # noqa: PLC0415 - likewise
    from tunnelmark.analysis.drift import baseline_drift  # noqa: PLC0415 - likewise
    from tunnelmark.analysis.emulated import set_apart  # noqa: PLC0415 - likewise
    from tunnelmark.analysis.factorial import factorial  # noqa: PLC0415 - likewise
    from tunnelmark.model.metrics import METRICS  # noqa: PLC0415 - likewise
    from tunnelmark.report.verdicts import moments_of  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise
    from tunnelmark.study.messages import nearest  # noqa: PLC0415 - likewise

    for metric in metrics:
        if metric not in METRICS:
            raise click.UsageError(f"--metric {metric} is no metric{nearest(metric, METRICS)}")
    result = open_result(directory)
    trials = set_apart(result.trials(), result.blocks.values())
    wanted = metrics or headline_metrics(trials)
    confidence, moments = result.manifest.confidence, moments_of(result)
    found: dict[str, list[Any]] = {
        "drift": [
            drift for m in wanted if (drift := baseline_drift(trials, m, confidence=confidence))
        ],
        "curves": [
            curve
            for m in wanted
            for curve in curves(trials, m, confidence=confidence, moments=moments)
        ],
        "correlations": list(
            together(trials, [m for m in wanted if _is_result(m)], confidence=confidence)
        ),
        "factorial": [one for m in wanted for one in factorial(cells_of(trials, m), m)],
    }
    if as_json:
        document = {name: [dataclasses.asdict(one) for one in many] for name, many in found.items()}
        click.echo(json.dumps(document, indent=1))
        return
    for title, lines in (
        ("Drift of the baseline over the run", _drifts(found["drift"])),
        ("Curves", (line for curve in found["curves"] for line in _curve(curve))),
        ("What goes with the CPU, by ranks over the points", _together(found["correlations"])),
        ("Which factor matters", _factorial(found["factorial"])),
    ):
        shown = list(lines)
        click.echo(title)
        for line in shown or ["nothing to tell: too few points or repeats"]:
            click.echo(f"  {line}")


def _is_result(metric: str) -> bool:
    """Say whether a metric may follow from the CPU: rates, losses, delays."""
    return not metric.startswith(("cpu_", "overhead_", "outer_", "compression_"))


def _drifts(found: list[Any]) -> Iterator[str]:
    from tunnelmark.analysis.units import change_as_text  # noqa: PLC0415 - keeps --help quick

    for one in found:
        quantity = "ratio" if one.relative else "difference"
        value, low, high = (
            change_as_text(v, one.metric, quantity) for v in (one.change, one.low, one.high)
        )
        said = "drifted" if one.clear else "no clear drift"
        yield f"{_title(one.metric)}: {value} [{low}, {high}] in {one.span_s:.0f} s: {said}"


def _curve(curve: "Curve") -> Iterator[str]:
    bend = curve.knee
    head = f"{curve.place}: {_title(curve.metric)} over {curve.along}"
    if bend is None:
        yield f"{head}: too few values for a bend"
    elif bend.p > 0.05:  # noqa: PLR2004 - the usual level
        yield f"{head}: no clear bend (p {bend.p:.2f})"
    else:
        yield f"{head}: bends at {bend.at:g} [{bend.low:g}, {bend.high:g}] (p {bend.p:.3f})"
    for one in curve.crossings:
        if one.after is None:
            continue
        start = "the start" if one.before is None else f"{one.before:g}"
        yield (
            f"{curve.place}: {_title(one.metric)} passes {one.limit:.1%} between {start} and "
            f"{one.after:g} of {curve.along}"
        )


def _together(found: list[Any]) -> Iterator[str]:
    for one in found:
        rho = one.correlation
        yield (
            f"{one.place}: {_title(one.metric)} and {_title(one.cpu)}: rho {rho.rho:+.2f} "
            f"[{rho.low:+.2f}, {rho.high:+.2f}] over {rho.points} points"
        )


def _factorial(found: list[Any]) -> Iterator[str]:
    for one in found:
        for effect in sorted(one.effects, key=lambda e: -e.partial_omega_squared):
            yield (
                f"{_title(one.metric)}, {one.workload}: {' with '.join(effect.factors)} explains "
                f"{effect.partial_omega_squared:.0%} (F {effect.f:.1f} with {effect.freedom:.0f} "
                f"and {one.residual_freedom:.0f}, p {effect.p:.2g})"
            )


def _title(metric: str) -> str:
    from tunnelmark.model.metrics import METRICS  # noqa: PLC0415 - keeps --help quick

    return METRICS[metric].title
