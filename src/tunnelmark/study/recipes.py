"""Tunnels that a study brings along: ``kind = "./mytun.toml"``, and the recipe's text with it.

When a study is loaded from a file, the recipes that it names are read and put behind its text, as
``[[recipe]]`` tables: a result, a resumed run and a worker elsewhere then have what was run.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Any, Final, TypeGuard

from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.study.drivers import LABEL, Fail, OwnKind
from tunnelmark.study.lines import Path
from tunnelmark.study.messages import shown
from tunnelmark.tunnels.recipe import KIND
from tunnelmark.tunnels.recipe_text import LARGEST_RECIPE_BYTES, Recipe, params_of, parse_recipe

MOST_RECIPES: Final = 64
LONGEST_PATH: Final = 4096
_KEYS: Final = ("path", "text")


def with_recipes(text: str, folder: FilePath) -> str:
    """Return a study with the recipes that it names behind it; paths are relative to ``folder``.

    Raises ``StudyError`` for one that cannot be read. What is no study is returned as it is: to say
    why is the parser's work.
    """
    try:
        document = toml.loads(text)
    except (ValueError, RecursionError):
        return text
    there = {table.get("path") for table in _tables(document, "recipe")}
    named = dict.fromkeys(
        kind
        for table in _tables(document, "tunnel")
        if is_path(kind := table.get("kind")) and kind not in there
    )
    added = [
        f"\n[[recipe]]\npath = {quoted(path)}\ntext = {quoted(_read(path, folder))}\n"
        for path in named
    ]
    return "".join([text, *added])


def is_path(kind: object) -> TypeGuard[str]:
    """Say whether a kind names a file."""
    return isinstance(kind, str) and kind.endswith(".toml") and "/" in kind


def own_kinds(document: Mapping[str, Any], fail: Fail) -> dict[str, OwnKind]:
    """Return the kinds of the study's own recipes; raises ``StudyError`` for what is wrong."""
    tables = document.get("recipe", [])
    if not isinstance(tables, list) or len(tables) > MOST_RECIPES:
        raise fail(("recipe",), f"recipe must be written as [[recipe]], at most {MOST_RECIPES}")
    found: dict[str, OwnKind] = {}
    for number, table in enumerate(tables):
        place = ("recipe", number)
        path, text = values_of(table, _KEYS, place, fail)
        if not is_path(path) or len(path) > LONGEST_PATH or path in found:
            raise fail(
                place, f"recipe.path is {shown(path)}, must be the path of a .toml file, given once"
            )
        if not isinstance(text, str):
            raise fail(place, f"recipe.text is {shown(text)}, must be a string")
        try:
            found[path] = _own_kind(path, text, parse_recipe(text, path))
        except StudyError as error:
            raise fail(_named_at(document, path) or place, str(error)) from error
    for number, table in enumerate(_tables(document, "tunnel")):
        kind = table.get("kind")
        if is_path(kind) and kind not in found:
            raise fail(
                ("tunnel", number, "kind"),
                f"tunnel.kind is {shown(kind)}, a recipe that is not part of the study; load "
                "the study from a file",
            )
    return found


def _own_kind(path: str, text: str, recipe: Recipe) -> OwnKind:
    settings = (*recipe.parameters, "mtu_bytes")

    def carried(params: Mapping[str, Any]) -> Mapping[str, Any]:
        common = {key: value for key, value in params.items() if key not in settings}
        return {
            "recipe": text,
            "settings": {key: params[key] for key in settings if key in params},
            "inner": recipe.inner[0],
            "outer": recipe.outer[0],
            **common,
        }

    stem = PurePosixPath(path).stem[:32]
    return OwnKind(
        kind=KIND,
        label=stem if LABEL.match(stem) else KIND,
        params_type=params_of(recipe),
        carried=carried,
        columns={
            "recipe": path[-64:],
            "recipe_sha256": hashlib.sha256(text.encode()).hexdigest()[:16],
        },
    )


def _read(path: str, folder: FilePath) -> str:
    file = folder / path
    try:
        if not file.is_file():
            raise StudyError(f"{path}: is not a file in {folder}, named as the kind of a tunnel")
        if file.stat().st_size > LARGEST_RECIPE_BYTES:
            raise StudyError(f"{path}: is longer than {LARGEST_RECIPE_BYTES} bytes")
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: cannot be read: {error}") from error


def values_of(table: object, keys: tuple[str, ...], place: Path, fail: Fail) -> tuple[Any, ...]:
    """Return the values of a table that has these keys and no other, or raise ``StudyError``."""
    if not isinstance(table, dict) or set(table) != set(keys):
        raise fail(place, f"{place[0]} must have the keys {' and '.join(keys)}, and no other")
    return tuple(table[key] for key in keys)


def quoted(text: str) -> str:
    """Return a text as TOML has it: as it stands, where that is possible."""
    quotes = "'" * 3
    if text.isprintable() or quotes in text or text.endswith("'") or not _is_plain(text):
        # Strings of JSON are strings of TOML, but for one control character.
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{quotes}\n{text}{quotes}"


def _is_plain(text: str) -> bool:
    return all(character in "\n\t" or character.isprintable() for character in text)


def _named_at(document: Mapping[str, Any], path: str) -> tuple[str, int, str] | None:
    for number, table in enumerate(_tables(document, "tunnel")):
        if table.get("kind") == path:
            return ("tunnel", number, "kind")
    return None


def _tables(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return what is written as ``[[name]]``; nothing for what is something else."""
    tables = document.get(name)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return []
    return tables
