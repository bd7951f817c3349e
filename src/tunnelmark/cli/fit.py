"""``tunnelmark fit``."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tunnelmark.analysis.fit_result import Measured
    from tunnelmark.model.costs import CostModel, Fitted, WorkCosts
    from tunnelmark.model.trial import DriverSpec
    from tunnelmark.model.tunnel import Encryption

_EPILOG = """
\b
examples:
  tunnelmark fit results/costs-20261122T191026Z-tm042ac
  tunnelmark fit results/costs-20261122T191026Z-tm042ac --output my-costs
  tunnelmark run my-study.toml --backend sim --costs my-costs

Each tunnel on each device of the run becomes one file, as docs/simulation.md
describes it. What cannot be fitted is named with the reason; the exit status
is 5 if that is everything.
"""


@click.command(epilog=_EPILOG)
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("costs"),
    show_default=True,
    help="Folder to write the cost models into; created if it does not exist.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def fit(*, result: Path, output: Path, force: bool) -> None:
    """Fit cost models for `run --backend sim` to the run in RESULT."""
    import tunnelmark  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.analysis.fit_result import fit_result  # noqa: PLC0415 - likewise
    from tunnelmark.lab.rates import Rates  # noqa: PLC0415 - likewise
    from tunnelmark.model.costs import to_toml  # noqa: PLC0415 - likewise
    from tunnelmark.model.errors import ResultError  # noqa: PLC0415 - likewise
    from tunnelmark.model.faults import write, writing  # noqa: PLC0415 - likewise

    measured = _measured(result)
    rates = Rates(measured.environments.values())
    run = replace(measured, rate=lambda *tunnel: rates.of(_encryption(*tunnel)))
    found = fit_result(run, fitted_by=f"tunnelmark {tunnelmark.__version__}")
    reasons = [f"{name} {reason}" for name, reason in found.refused.items()]
    if not found.models:
        raise ResultError(f"{result}: nothing can be fitted: {'; '.join(reasons) or 'no tunnel'}")
    paths = {name: output / f"{name}.toml" for name in found.models}
    if not force and (there := [str(path) for path in paths.values() if path.exists()]):
        raise click.UsageError(f"{', '.join(there)}: exists; --force replaces it")
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    for name, model in found.models.items():
        write(paths[name], to_toml(model).encode())
        _print(paths[name], model)
        if name in found.unscaled:
            click.echo(f"  cannot be scaled to devices: {found.unscaled[name]}")
    for reason in reasons:
        click.echo(f"tunnelmark: not fitted: {reason}", err=True)


def _measured(directory: Path) -> "Measured":
    from datetime import datetime  # noqa: PLC0415 - keeps --help quick

    from tunnelmark.analysis.fit_result import Measured  # noqa: PLC0415 - likewise
    from tunnelmark.execute.study_of import study_of  # noqa: PLC0415 - likewise
    from tunnelmark.store import open_result  # noqa: PLC0415 - likewise

    result = open_result(directory)
    manifest = result.manifest
    study, _ = study_of(directory)
    rates = {link.label: rate for link in study.links if (rate := _ns_per_byte(link)) is not None}
    return Measured(
        name=directory.resolve().name,
        study=manifest.study,
        trials=result.trials(),
        blocks=tuple(result.blocks.values()),
        environments=manifest.environments,
        measured=datetime.fromisoformat(manifest.started_at).date(),
        tunnels=_by_label(study.tunnels),
        devices=_by_label(study.devices),
        ns_per_byte=rates,
        samples=result.samples,
    )


def _encryption(spec: "DriverSpec", implementation: str) -> "Encryption":
    from tunnelmark.model.registry import make  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    tunnel = make(tunnel_kinds(), spec)
    if tunnel.chooses:
        chosen = replace(spec, params={**spec.params, "implementation": implementation})
        tunnel = make(tunnel_kinds(), chosen)
    return tunnel.encryption(None)


def _by_label(specs: "tuple[DriverSpec, ...]") -> "Mapping[str, DriverSpec]":
    return {spec.label: spec for spec in specs}


def _ns_per_byte(link: "DriverSpec") -> tuple[float, float] | None:
    """Return what a byte takes on a link, there and back; None where that is not constant."""
    from tunnelmark.engine.link import LinkSpec  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.links.registry import link_kinds  # noqa: PLC0415 - likewise
    from tunnelmark.model.registry import make  # noqa: PLC0415 - likewise

    if link.kind == "direct":
        return 0.0, 0.0
    spec = make(link_kinds(), link).spec(0)
    if not isinstance(spec, LinkSpec):
        return None
    there, back = spec.a_to_b.rate_bit_s, spec.b_to_a.rate_bit_s
    return None if there is None or back is None else (8e9 / there, 8e9 / back)


def _print(path: Path, model: "CostModel") -> None:
    origin = model.provenance
    click.echo(f"{path}: {origin.program}, {origin.trials} trials")
    for end, costs in (("client", model.client), ("server", model.server)):
        for way, work in (("wrap", costs.wrap), ("unwrap", costs.unwrap)):
            click.echo(f"  {end} {way}: {_work(work)}")
    click.echo(f"  {origin.note}")
    if (rate := origin.rate) is not None:
        click.echo(
            f"  {rate.describe()} {rate.mbyte_s:.1f} MB/s, {rate.plain_mbyte_s:.1f} MB/s without "
            "cipher instructions: can be scaled to devices"
        )


def _work(work: "WorkCosts") -> str:
    parts = [
        f"{_figure(work.packet_ns, 1e-3)} us a packet",
        f"{_figure(work.byte_ps, 1e-3)} ns a byte",
    ]
    if work.scatter is not None:
        parts.append(f"scatter {_figure(work.scatter, 1.0)}")
    if work.most_waiting is not None:
        parts.append(f"at most {_figure(work.most_waiting, 1.0)} waiting")
    return ", ".join(parts)


def _figure(one: "Fitted", factor: float) -> str:
    low, high = one.low * factor, one.high * factor
    return f"{one.estimate * factor:.4g} [{low:.4g}, {high:.4g}]"
