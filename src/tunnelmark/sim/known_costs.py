"""The cost models that a simulation may use: those of this package, and a folder of one's own."""

from importlib import resources
from pathlib import Path
from typing import Final

from tunnelmark.model.costs import LARGEST_COSTS_BYTES, CostModel, parse_costs
from tunnelmark.model.errors import StudyError

_ENDING: Final = ".toml"


def known_costs(folder: Path | None = None) -> tuple[CostModel, ...]:
    """Return all models in the order in which they count: those of ``folder`` first.

    In each part those that say most of their tunnel come first, then by the files' names.
    Raises ``StudyError`` for a file that cannot be read or is wrong.
    """
    own = _of_folder(folder) if folder is not None else ()
    return (*sorted(own, key=_general), *sorted(_packaged(), key=_general))


def _general(model: CostModel) -> int:
    return -len(model.tunnel.params) - len(model.device.params)


def _of_folder(folder: Path) -> tuple[CostModel, ...]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == _ENDING)
        texts = [(str(path), _bounded(path)) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{folder}: cost models cannot be read: {error}") from error
    if not texts:
        raise StudyError(f"{folder}: has no cost model, a file that ends in {_ENDING}")
    return tuple(parse_costs(text, place) for place, text in texts)


def _bounded(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(LARGEST_COSTS_BYTES + 1)


def _packaged() -> tuple[CostModel, ...]:
    folder = resources.files("tunnelmark.sim").joinpath("costs")
    files = sorted(
        (one for one in folder.iterdir() if one.name.endswith(_ENDING)), key=lambda one: one.name
    )
    return tuple(parse_costs(one.read_text(encoding="utf-8"), f"costs/{one.name}") for one in files)
