"""The study of a result, parsed again."""

import hashlib
from dataclasses import replace
from pathlib import Path

from tunnelmark.model.errors import ResultError
from tunnelmark.store import open_result
from tunnelmark.study import Study, parse_study


def study_of(directory: Path) -> tuple[Study, tuple[str, ...]]:
    """Return the study of a result, and the jobs that it is limited to; none: to none."""
    manifest = open_result(directory).manifest
    if hashlib.sha256(manifest.study_text.encode()).hexdigest() != manifest.study_sha256:
        raise ResultError(f"{directory}: the study in the manifest was changed after the run")
    study = parse_study(manifest.study_text, manifest.study_source, manifest.scale)
    return replace(study, seed=manifest.seed), manifest.jobs
