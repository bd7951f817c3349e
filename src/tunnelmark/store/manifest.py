"""The manifest: what was run, with which programs, on what machine."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tunnelmark.model.errors import ResultError
from tunnelmark.model.suites import Suite
from tunnelmark.store.formats import CONVERTERS, FORMAT, Converter, Converters, steps
from tunnelmark.store.layout import MANIFEST, first_fault, inside, read_bounded, write_atomically


class Sitting(BaseModel):
    """One time in which trials of a result were measured: a run, a resume, a merged job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str
    worker: str
    """Name of the computer."""
    environment: str
    """Key of ``Manifest.environments``."""
    started_at: str
    """UTC, ISO 8601."""
    jobs: tuple[str, ...] = ()
    """Jobs that this worker of a cluster ran; none where one computer ran all."""


class Manifest(BaseModel):
    """The head of a result directory."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal[3] = FORMAT
    study: str
    title: str
    description: str
    study_text: str
    """The study file as it was run."""
    study_source: str
    study_sha256: str
    scale: str = "full"
    """At which the study was run: ``smoke``, ``short`` or ``full``."""
    suite: Suite | None = None
    """Debian release of the virtual machines, by the study or by ``run --suite``."""
    kernel: str | None = None
    """Release of a user's own kernel for them."""
    run_id: str
    seed: int
    confidence: float = Field(gt=0, lt=1)
    precision_metric: str
    started_at: str
    """UTC, ISO 8601."""
    ended_at: str | None = None
    outcome: str | None = None
    """``complete``, ``interrupted`` or ``failed``; None while it runs or if it was killed."""
    wall_s: float | None = None
    """Over all sessions of a run that was resumed."""
    measuring_s: float | None = None
    """Seconds of it in which traffic was under way."""
    environment: Mapping[str, str]
    """Kernel, CPU, memory, versions of every program used, by name; of the first sitting."""
    environments: Mapping[str, Mapping[str, str]] = {}
    """The same of each sitting, by the key that its trials name."""
    sittings: tuple[Sitting, ...] = ()
    skipped: Mapping[str, str] = {}
    """What cannot be run here, tunnels most of all, and why."""
    omitted: tuple[str, ...] = ()
    """Jobs of the study of which nothing can be run here."""
    jobs: tuple[str, ...] = ()
    """Jobs of the study that this result is limited to; none: it is of the whole study."""

    @property
    def measuring_ratio(self) -> float | None:
        """Share of the wall time in which traffic was under way."""
        if self.wall_s is None or self.measuring_s is None or self.wall_s <= 0:
            return None
        return self.measuring_s / self.wall_s


def environment_key(environment: Mapping[str, str]) -> str:
    """Return a short name of an environment: another kernel, CPU or program is another one."""
    # A kernel keeps a little memory for itself, and a calibration scatters: both are as before.
    kept = {
        name: value
        for name, value in environment.items()
        if name != "memory" and not name.startswith("device ")
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def read_manifest(
    directory: Path, *, converters: Converters = CONVERTERS, newest: int = FORMAT
) -> Manifest:
    """Read a manifest of any known format; ``ResultError`` names the file and what is wrong."""
    return read_versioned(directory, converters=converters, newest=newest)[0]


def read_versioned(
    directory: Path, *, converters: Converters = CONVERTERS, newest: int = FORMAT
) -> tuple[Manifest, tuple[Converter, ...]]:
    """Read a manifest, and what the rest of the directory must be converted with."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ResultError(f"{directory}: is not a result directory: it has no {MANIFEST}")
    try:
        raw = json.loads(read_bounded(inside(directory, MANIFEST)))
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: is damaged: {error}") from error
    converting = steps(raw, str(path), converters=converters, newest=newest)
    for step in converting:
        raw = step.manifest(raw)
    try:
        return Manifest.model_validate_json(json.dumps(raw), strict=True), converting
    except ValidationError as error:
        raise ResultError(f"{path}: {first_fault(error)}") from error


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write it in place of the one that is there."""
    text = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_atomically(directory / MANIFEST, text.encode())
