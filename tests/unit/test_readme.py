"""README and docs name what there is: drivers, devices, studies, pages, commands that parse."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import click
import pytest

from tunnelmark.cli import main
from tunnelmark.devices.registry import DEVICES
from tunnelmark.links.registry import link_kinds
from tunnelmark.study import FULL, list_studies, parse_study
from tunnelmark.tunnels.recipe_text import parse_recipe
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(tunnelmark [^`\n]+)`")
_IS_RECIPE = "\ndata_path = "
# What stands in a text for a name of the reader's own, and a name that is there.
_FOLDERS = {"DIR", "A", "B", "FOLDER", "results/NAME", "my-costs"}
_NAMES = {"NAME": "quickstart", "STUDY": "quickstart", "TUNNEL": "openvpn", "COMMAND": "run"}
_CHEAP = {"overhead", "audit", "version", "studies", "--help", "--version"}
"""Commands that touch nothing and end at once: these are not only parsed but run."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(tunnel_kinds()), id="tunnels"),
        pytest.param(sorted(link_kinds()), id="links"),
        pytest.param(sorted(workload_kinds()), id="workloads"),
        pytest.param(sorted(DEVICES), id="devices"),
        pytest.param(sorted(list_studies()), id="studies"),
    ],
)
def test_the_readme_names_every_one(names: list[str]) -> None:
    named = set(re.findall(r"`([a-z0-9_-]+)`", README.read_text(encoding="utf-8")))
    assert [name for name in names if name not in named] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_that_is_linked_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def _shown() -> list[tuple[str, str]]:
    """Return (where, command line) of all pages and of the examples of every ``--help``."""
    found = []
    for page in PAGES:
        if page.name == "commands.md":
            continue  # every --help itself: looked at below
        text = page.read_text(encoding="utf-8")
        lines = [line for _, body in _BLOCK.findall(text) for line in body.splitlines()]
        commands = [line for line in lines if line.startswith("tunnelmark ")]
        commands += _INLINE.findall(_BLOCK.sub("", text))
        found += [(page.name, command) for command in commands]
    for words, command in _commands(main.tunnelmark, ()):
        lines = [line.strip() for line in (command.epilog or "").splitlines()]
        found += [
            (f"{' '.join(words)} --help", line.removeprefix("nohup "))
            for line in lines
            if line.removeprefix("nohup ").startswith("tunnelmark ")
        ]
    return found


def _commands(
    group: click.Group, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    yield words, group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _lines(shown: str) -> list[list[str]]:
    """Return the words of a command as a reader would type them, once for each choice (a|b)."""
    plain = re.split(r"\s{2,}|\s[#>|&]\s?", shown)[0]  # what is said of it, where its output goes
    words = shlex.split(plain)[1:]
    ways = [word.split("|") for word in words]
    return [[_typed(word) for word in way] for way in product(*ways)]


def _costs_nothing(shown: str) -> bool:
    """Say whether a command ends at once and needs no result of a run."""
    return shown.split()[1] in _CHEAP and not any("dir" in words for words in _lines(shown))


def _typed(word: str) -> str:
    if word in _FOLDERS or word.startswith("results/") or "…" in word:
        return "dir"
    if word.endswith(".toml") or word == "FILE":
        return "study.toml"
    return _NAMES.get(word, word)


@pytest.fixture
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what the commands name, and nothing else."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "study.toml").write_text(_studies_of(README)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize(("where", "shown"), _shown())
def test_every_command_that_is_shown_parses(where: str, shown: str) -> None:
    for words in _lines(shown):
        try:
            _parse(words)
        except click.ClickException as error:
            pytest.fail(f"{where}: {shown}: {error.format_message()}")


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("shown", sorted({shown for _, shown in _shown() if _costs_nothing(shown)}))
def test_what_costs_nothing_runs(shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in _lines(shown):
        assert main.call(words) == 0, capsys.readouterr().err
        assert capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        "tunnelmark frobnicate",
        "tunnelmark run --frobnicate quickstart",
        "tunnelmark run quickstart --place moon",
        "tunnelmark run quickstart --place auto|moon",
        "tunnelmark studies frobnicate",
        "tunnelmark report DIR --format interpretive-dance",
        "tunnelmark run --resume nowhere",
    ],
)
@pytest.mark.usefixtures("_place")
def test_a_command_that_is_not_there_would_be_found(wrong: str) -> None:
    found = []
    for words in _lines(wrong):
        try:
            _parse(words)
        except click.ClickException as error:
            found.append(error)
    assert found


@pytest.mark.parametrize("page", [p for p in PAGES if "format = 1" in p.read_text("utf-8")])
def test_every_study_that_is_shown_is_one(page: Path) -> None:
    for text in _studies_of(page):
        parse_study(text, page.name, FULL)


@pytest.mark.parametrize("page", [p for p in PAGES if _IS_RECIPE in p.read_text("utf-8")])
def test_every_recipe_that_is_shown_is_one(page: Path) -> None:
    shown = [text for text in _toml_of(page) if _IS_RECIPE in text]
    assert shown
    for text in shown:
        parse_recipe(text, page.name)


def _studies_of(page: Path) -> list[str]:
    return [text for text in _toml_of(page) if _IS_RECIPE not in text]


def _toml_of(page: Path) -> list[str]:
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [body for form, body in blocks if form == "toml" and "format = 1" in body]


def _parse(words: list[str]) -> None:
    """Parse a command line as the program would; ``ClickException`` where it would refuse it."""
    command: click.Command = main.tunnelmark
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        if not words or words[0].startswith("-"):
            break
        name, *words = words
        inner = command.get_command(context, name)
        if inner is None:
            raise click.UsageError(f"there is no command {name}")
        command = inner
    if not words:
        return  # a command that is only named
    with suppress(click.exceptions.Exit):  # --help and --version end there
        command.make_context(command.name, words, parent=context)
