"""Text to Study to ordered trials; the built-in studies are TOML files beside it."""

from importlib.resources import files
from pathlib import Path

from tunnelmark.model.errors import StudyError
from tunnelmark.study.parse import LARGEST_FILE_BYTES, parse_study
from tunnelmark.study.scale import FULL, SCALES
from tunnelmark.study.study import Study

__all__ = ["FULL", "SCALES", "Study", "list_studies", "load_study", "parse_study"]


def list_studies() -> tuple[str, ...]:
    """Return the names of the built-in studies."""
    folder = files(__package__).joinpath("builtin")
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_study(name_or_path: str, scale: str = FULL) -> Study:
    """Load a built-in study by name, or a file by path, at one of its scales."""
    if name_or_path in list_studies():
        return parse_study(_builtin(name_or_path), f"{name_or_path}.toml", scale)
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(list_studies())
        raise StudyError(f"{name_or_path}: is no file and no built-in study; built in are {known}")
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise StudyError(f"{path}: is longer than {LARGEST_FILE_BYTES} byte")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: cannot be read: {error}") from error
    return parse_study(text, path.name, scale)


def _builtin(name: str) -> str:
    """Return a built-in study, the claims of its publication behind it as hypotheses."""
    folder = files(__package__)
    text = folder.joinpath("builtin", f"{name}.toml").read_text(encoding="utf-8")
    claims = folder.joinpath("claims", f"{name}.toml")
    return f"{text}\n{claims.read_text(encoding='utf-8')}" if claims.is_file() else text
