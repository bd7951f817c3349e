"""The cost models of a measured run: which tunnels on which devices, and where they come from."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import polars as pl

from tunnelmark.analysis.fit import FittedEnds, fit_costs, refusal
from tunnelmark.analysis.fit_trials import FitTrial, fit_trials
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.costs import (
    CipherRate,
    CostedDevice,
    CostedTunnel,
    CostModel,
    Provenance,
)
from tunnelmark.model.overhead import IP_VERSIONS, IpName
from tunnelmark.model.quantity import percent
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import DataPath

_NOT_OF_THE_COST: Final = frozenset({"count", "inner", "outer"})
"""Columns of a tunnel that do not change what its program does to a packet."""


@dataclass(frozen=True)
class Measured:
    """A run, as much of it as a fit needs."""

    name: str
    """Of the result directory."""
    study: str
    trials: pl.DataFrame
    """``store.Result.trials()``."""
    blocks: Sequence[BlockRecord]
    environments: Mapping[str, Mapping[str, str]]
    measured: date
    tunnels: Mapping[str, DriverSpec]
    """By label, as the study has them; likewise the devices."""
    devices: Mapping[str, DriverSpec]
    ns_per_byte: Mapping[str, tuple[float, float]]
    """What a byte takes on a link, there and back, by the link's label; left out: not known."""
    samples: Callable[[str], bytes] | None = None
    """Reads a bulk record file of the result."""
    rate: Callable[[DriverSpec, str], CipherRate | str] = lambda _tunnel, _implementation: (
        "its cipher was not measured"
    )
    """What a core of the measuring computer does of the cipher of a tunnel that was implemented so,
    or why that is not known."""


@dataclass(frozen=True)
class Fits:
    """What came of a run."""

    models: Mapping[str, CostModel]
    """By a name for a file, without its ending."""
    refused: Mapping[str, str]
    """Why there is none, by tunnel and device."""
    unscaled: Mapping[str, str]
    """Why a model cannot be scaled to devices, by its name for a file."""


def fit_result(
    run: Measured, *, fitted_by: str, confidence: float = 0.95, simulated: bool = False
) -> Fits:
    """Fit every tunnel of a run on every device.

    ``simulated``: also what was simulated, which tells nothing but whether the fit is right.
    """
    models: dict[str, CostModel] = {}
    refused: dict[str, str] = {}
    unscaled: dict[str, str] = {}
    total = run.trials.filter(pl.col("path") == "total")
    own = total.filter(~pl.col("is_baseline"))
    for tunnel, device in own.select("tunnel", "device").unique(maintain_order=True).iter_rows():
        name = tunnel if device == "host" else f"{tunnel} on {device}"
        rows = total.filter(
            (pl.col("device") == device) & (pl.col("is_baseline") | (pl.col("tunnel") == tunnel))
        )
        one = _Fit(run, tunnel, device, rows, simulated=simulated)
        if (reason := one.refusal()) is not None:
            refused[name] = reason
            continue
        trials = one.trials()
        if (reason := refusal(trials)) is not None:
            refused[name] = reason
            continue
        try:
            ends = fit_costs(trials, confidence=confidence)
        except ValueError as error:
            refused[name] = str(error)
            continue
        file_name, rate = _file_name(name, models), one.rate()
        if isinstance(rate, str):
            unscaled[file_name] = rate
        known = rate if isinstance(rate, CipherRate) else None
        models[file_name] = one.model(ends, fitted_by, known)
    return Fits(models, refused, unscaled)


@dataclass(frozen=True)
class _Fit:
    """A tunnel on a device."""

    run: Measured
    tunnel: str
    device: str
    rows: pl.DataFrame
    simulated: bool

    @property
    def blocks(self) -> list[BlockRecord]:
        return [
            one
            for one in self.run.blocks
            if (one.tunnel, one.device) == (self.tunnel, self.device) and one.negotiated
        ]

    def refusal(self) -> str | None:
        """Return what is in the way before its trials are looked at."""
        own = self.rows.filter(~pl.col("is_baseline"))
        strata = set(own["stratum"])
        if Stratum.SIMULATION.value in strata and not self.simulated:
            return "was simulated, a cost model needs a measured run"
        if len(strata) > 1 or own["environment"].n_unique() > 1:
            return (
                "was measured in several places or environments, which are never pooled: fit "
                "results of one each"
            )
        return self._of_study() or self._of_blocks()

    def _of_study(self) -> str | None:
        spec = self.run.tunnels.get(self.tunnel)
        if spec is None or self.device not in self.run.devices:
            return "is not in the study of the result"
        if spec.columns.get("count", 1) != 1:
            return "is several at once (count), which share a CPU"
        return None

    def _of_blocks(self) -> str | None:
        if not self.blocks:
            return "never came up"
        paths = {agreed.data_path for block in self.blocks for agreed in block.negotiated}
        if not self.simulated and paths != {DataPath.USER_SPACE}:
            seen = ", ".join(sorted(str(path or "not known") for path in paths))
            return (
                f"does its work outside its own processes (data path: {seen}), so there is no CPU "
                "figure of its own"
            )
        versions = {agreed.version for block in self.blocks for agreed in block.negotiated}
        if len(versions) > 1:
            return f"is of several versions: {', '.join(sorted(versions))}"
        return None

    def trials(self) -> tuple[FitTrial, ...]:
        """Return the trials of all links."""
        agreed = self.blocks[0].negotiated[0]
        inner: IpName = "ipv6" if self._spec.columns.get("inner") == "ipv6" else "ipv4"
        valid = self.rows.filter(pl.col("valid"))
        return tuple(
            trial
            for (link,), rows in valid.group_by("link", maintain_order=True)
            for trial in fit_trials(
                rows,
                mtu_bytes=agreed.mtu_bytes,
                inner_ip=IP_VERSIONS[inner],
                ns_per_byte=self.run.ns_per_byte.get(str(link)),
                samples=self.run.samples,
            )
        )

    def rate(self) -> CipherRate | str:
        """Return the rate of its cipher, or why there is none."""
        # A machine's CPU is another one, and a limited device is no whole core.
        whole = self.run.devices[self.device].kind == "host"
        if not whole or self._stratum is not Stratum.NAMESPACES:
            return "it is no fit on a whole computer, in namespaces"
        return self.run.rate(self._spec, self.blocks[0].negotiated[0].implementation)

    def model(self, ends: FittedEnds, fitted_by: str, rate: CipherRate | None) -> CostModel:
        """Return the model with where it comes from."""
        own = self.rows.filter(~pl.col("is_baseline"))
        agreed = self.blocks[0].negotiated[0]
        environment = self.run.environments.get(own["environment"][0], {})
        machine = ", ".join(
            text
            for text in (
                environment.get("cpu", ""),
                f"Linux {environment['kernel']}" if environment.get("kernel") else "",
            )
            if text
        )
        device = self.run.devices[self.device]
        return CostModel(
            CostedTunnel(self._spec.kind, agreed.implementation, _params(self._spec.columns)),
            CostedDevice(device.kind, _params(device.columns)),
            Provenance(
                program=agreed.version,
                machine=machine or "not known",
                stratum=self._stratum,
                measured=self.run.measured,
                result=self.run.name,
                study=self.run.study,
                trials=ends.trials,
                fitted_by=fitted_by,
                note=f"intervals of {percent(ends.confidence)} over {ends.bring_ups} bring-ups; "
                + "; ".join(ends.notes),
                rate=rate,
            ),
            ends.client,
            ends.server,
        )

    @property
    def _spec(self) -> DriverSpec:
        return self.run.tunnels[self.tunnel]

    @property
    def _stratum(self) -> Stratum:
        return Stratum(self.rows.filter(~pl.col("is_baseline"))["stratum"][0])


def _params(columns: Mapping[str, object]) -> dict[str, Any]:
    """Return what a study's driver must have in common with this one; TOML has no None."""
    return {
        name: value
        for name, value in columns.items()
        if name not in _NOT_OF_THE_COST and isinstance(value, str | int | float)
    }


def _file_name(name: str, taken: Mapping[str, object]) -> str:
    """Return a name of small letters, digits and hyphens that no other file has."""
    start = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "tunnel"
    found, number = start, 2
    while found in taken:
        found, number = f"{start}-{number}", number + 1
    return found
