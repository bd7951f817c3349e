"""The study of a result, parsed again."""

import hashlib
from dataclasses import replace
from pathlib import Path

from tunnelmark.model.errors import ResultError
from tunnelmark.model.suites import Suite
from tunnelmark.store import Manifest, open_result
from tunnelmark.study import Study, parse_study
from tunnelmark.study.study import PlaceParams
from tunnelmark.study.traces import check_traces


def study_of(directory: Path) -> tuple[Study, tuple[str, ...]]:
    """Return the study of a result, and the jobs that it is limited to; none: to none."""
    manifest = open_result(directory).manifest
    if hashlib.sha256(manifest.study_text.encode()).hexdigest() != manifest.study_sha256:
        raise ResultError(f"{directory}: the study in the manifest was changed after the run")
    return study_in(manifest), manifest.jobs


def study_in(manifest: Manifest) -> Study:
    """Return the study of a manifest as it was run: with its seed, and the machines' system.

    Raises ``StudyError`` for a trace that has changed: no figure would be of the same link.
    """
    study = parse_study(manifest.study_text, manifest.study_source, manifest.scale)
    check_traces(study)
    return replace(
        study, seed=manifest.seed, place=placed(study.place, manifest.suite, manifest.kernel)
    )


def placed(place: PlaceParams, suite: Suite | None, kernel: str | None) -> PlaceParams:
    """Return the place with another suite or kernel than the study's, where one is given."""
    given = {"suite": suite, "kernel": kernel}
    return place.model_copy(update={name: one for name, one in given.items() if one is not None})
