"""The manifest: what was run, with which programs, on what machine."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from tunnelmark.model.errors import ResultError
from tunnelmark.store.layout import FORMAT, MANIFEST, read_bounded, write_atomically


class Manifest(BaseModel):
    """The head of a result directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    study: str
    title: str
    description: str
    study_text: str
    study_source: str
    study_sha256: str
    run_id: str
    seed: int
    confidence: float
    precision_metric: str
    started_at: str
    """UTC, ISO 8601."""
    ended_at: str | None = None
    outcome: str | None = None
    wall_s: float | None = None
    measuring_s: float | None = None
    environment: Mapping[str, str]
    """Kernel, CPU, memory, versions of every program used, by name."""
    skipped: Mapping[str, str] = {}
    """Tunnels that this machine cannot run, and why."""


CONVERTERS: Final[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""Format version to the function that turns such a manifest into the next version."""


def read_manifest(
    directory: Path,
    *,
    converters: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = CONVERTERS,
    newest: int = FORMAT,
) -> Manifest:
    """Read a manifest of any known format; ``ResultError`` names the file and what is wrong."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ResultError(f"{directory}: is no result directory, it has no {MANIFEST}")
    try:
        raw = json.loads(read_bounded(path))
    except ValueError as error:
        raise ResultError(f"{path}: is damaged: {error}") from error
    version = raw.get("format") if isinstance(raw, dict) else None
    if not isinstance(version, int):
        raise ResultError(f"{path}: has no format version")
    if version > newest:
        raise ResultError(
            f"{path}: has format {version}, this Tunnelmark reads up to {newest}; take a newer one"
        )
    while version < newest:
        if version not in converters:
            raise ResultError(f"{path}: has format {version}, which never was")
        raw = converters[version](raw)
        version += 1
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ResultError(f"{path}: {place}: {first['msg'].lower()}") from error


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write it in place of the one that is there."""
    text = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_atomically(directory / MANIFEST, text.encode())
