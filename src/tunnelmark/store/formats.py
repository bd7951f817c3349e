"""One converter per format version: every older result directory is read as if it were new."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tunnelmark.model.errors import ResultError

FORMAT: Final = 3
"""Version that is written."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Converter:
    """Turns what a result directory of one version holds into the next version."""

    manifest: Callable[[Json], Json] = lambda raw: raw
    block: Callable[[Json], Json] = lambda raw: raw
    trials: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame


Converters = Mapping[int, Converter]


def _manifest_of_2(raw: Json) -> Json:
    return {**raw, "format": 2}


def _block_of_2(raw: Json) -> Json:
    """Give each proof a verdict, it said only whether it held; no data path was recorded.

    Where a block ran stood in words; the last of them named the CPU.
    """
    placed_on = raw.get("placed_on")
    words = placed_on.split() if isinstance(placed_on, str) else []
    cpu = words[-2] if words[-1:] == ["CPU"] and len(words) > 1 else ""
    raw.setdefault("stratum", cpu if cpu in {"emulated", "virtualized"} else "namespaces")
    for key in ("negotiated", "baseline_negotiated"):
        tunnels = raw.get(key)
        for agreed in tunnels if isinstance(tunnels, list) else ():
            if isinstance(agreed, dict):
                agreed.setdefault("data_path", None)
    for key in ("proofs", "baseline_proofs"):
        proofs = raw.get(key)
        for proof in proofs if isinstance(proofs, list) else ():
            if isinstance(proof, dict) and "ok" in proof:
                proof["verdict"] = "proved" if proof.pop("ok") else "saw_wrong"
    return raw


def _trials_of_2(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the one bring-up that all repeats of a point came from."""
    return frame.with_columns(bring_up=pl.lit(1, pl.Int32))


def _manifest_of_3(raw: Json) -> Json:
    """Take its one environment for that of all trials; nobody noted on which computer."""
    return {**raw, "format": 3}


def _trials_of_3(frame: pl.DataFrame) -> pl.DataFrame:
    """Add where trials were measured: one place that has no name. Their block has the stratum."""
    nowhere = pl.lit("", pl.String)
    return frame.with_columns(worker=nowhere, environment=nowhere, stratum=pl.lit(None, pl.String))


CONVERTERS: Final[Converters] = {
    1: Converter(manifest=_manifest_of_2, block=_block_of_2, trials=_trials_of_2),
    2: Converter(manifest=_manifest_of_3, trials=_trials_of_3),
}
"""Format version to what turns it into the next one."""


def steps(
    raw: object, place: str, *, converters: Converters = CONVERTERS, newest: int = FORMAT
) -> tuple[Converter, ...]:
    """Return the converters to apply, oldest first, for a manifest as it was read.

    Raises ``ResultError`` naming ``place`` for a version that is newer, or that never was.
    """
    version = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(version, bool) or not isinstance(version, int):
        raise ResultError(f"{place}: has no format version, must be 1 to {newest}")
    if version > newest:
        raise ResultError(
            f"{place}: has format {version}, this Tunnelmark reads up to {newest}; upgrade it"
        )
    if version < min((*converters, newest)):
        raise ResultError(f"{place}: has format {version}, which does not exist")
    return tuple(converters[step] for step in range(version, newest))
