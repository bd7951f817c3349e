"""Text to Study to ordered trials; the built-in studies are TOML files beside it."""

import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.study.parse import LARGEST_FILE_BYTES, parse_study
from tunnelmark.study.recipes import with_recipes
from tunnelmark.study.scale import FULL, SCALES, names
from tunnelmark.study.study import Study
from tunnelmark.study.traces import check_traces, with_traces

__all__ = ["FULL", "SCALES", "Study", "list_studies", "load_study", "parse_study", "scales_of"]


def list_studies() -> tuple[str, ...]:
    """Return the names of the built-in studies."""
    folder = files(__package__).joinpath("builtin")
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def scales_of(name: str) -> tuple[str, ...]:
    """Return the scales that a built-in study has, the smallest first."""
    return names(tomllib.loads(_builtin(name)))


def load_study(name_or_path: str, scale: str = FULL, *, on_line: bool = False) -> Study:
    """Load a built-in study by name, or a file by path, at one of its scales.

    ``on_line``: it runs over a real line, so that one without a link takes that as it is.
    """
    if name_or_path in list_studies():
        return parse_study(_builtin(name_or_path), f"{name_or_path}.toml", scale)
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(list_studies())
        raise StudyError(f"{name_or_path}: is neither a file nor a built-in study ({known})")
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise StudyError(f"{path}: is longer than {LARGEST_FILE_BYTES} bytes")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: cannot be read: {error}") from error
    text = with_recipes(text, path.parent)
    text = _with_line(text) if on_line else text
    study = parse_study(text, path.name, scale)
    check_traces(study)
    return replace(study, text=with_traces(text, study.links))


def _with_line(text: str) -> str:
    """Return a study with the line as its link, if it has none: the result has it like that."""
    try:
        has_link = "link" in toml.loads(text)
    except (ValueError, RecursionError):
        return text  # the parser says what is wrong
    return text if has_link else f"{text.rstrip()}\n{_LINE}"


_LINE: Final = """
# Without a link of its own the study takes the line between the hosts as it is.
[[link]]
kind = "direct"
label = "line"
"""


def _builtin(name: str) -> str:
    """Return a built-in study, the claims of its publication behind it as hypotheses."""
    folder = files(__package__)
    text = folder.joinpath("builtin", f"{name}.toml").read_text(encoding="utf-8")
    claims = folder.joinpath("claims", f"{name}.toml")
    return f"{text}\n{claims.read_text(encoding='utf-8')}" if claims.is_file() else text
