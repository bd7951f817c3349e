"""Recipes of one's own in studies: read when the study is loaded, and with it from then on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tunnelmark.tunnels
from made_study import one_workload
from tunnelmark.model.errors import StudyError
from tunnelmark.model.registry import make
from tunnelmark.study import load_study, parse_study
from tunnelmark.study.recipes import quoted, with_recipes
from tunnelmark.tunnels.recipe import RecipeTunnel
from tunnelmark.tunnels.registry import tunnel_kinds

RECIPE = (Path(tunnelmark.tunnels.__path__[0]) / "recipes" / "socat_tls.toml").read_text("utf-8")
STUDY = one_workload('kind = "./mytun.toml"\n')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mytun.toml").write_text(RECIPE, "utf-8")
    return tmp_path


def loaded(folder: Path, more: str = "") -> Path:
    path = folder / "mine.toml"
    path.write_text(STUDY + more, "utf-8")
    return path


def test_a_study_has_its_recipe_with_it(folder: Path) -> None:
    study = load_study(str(loaded(folder, 'mtu_bytes = [1300, 1400]\nouter = "ipv4"\n')))
    assert [spec.label for spec in study.tunnels] == ["mytun-1300-ipv4", "mytun-1400-ipv4"]
    spec = study.tunnels[0]
    assert spec.columns["recipe"] == "./mytun.toml"
    assert len(str(spec.columns["recipe_sha256"])) == 16
    assert spec.columns["mtu_bytes"] == 1300
    tunnel = make(tunnel_kinds(), spec)
    assert isinstance(tunnel, RecipeTunnel)
    assert tunnel.recipe.title == "socat over TLS"
    assert tunnel._mtu_bytes == 1300
    assert tunnel.by_model(1500).mtu_bytes == 1300
    # As a resumed run does, elsewhere and with the file gone.
    (folder / "mytun.toml").unlink()
    again = parse_study(study.text, study.source)
    assert again.tunnels == study.tunnels
    assert with_recipes(study.text, folder) == study.text


@pytest.mark.parametrize(
    ("more", "recipe", "words"),
    [
        ("", None, "./mytun.toml: is not a file in "),
        ("", "format = 2", "mine.toml:13: ./mytun.toml: format: Input should be 1"),
        ("", "x" * 70_000, "./mytun.toml: is longer than 65536 bytes"),
        ('cipher = "ROT13"', RECIPE, 'mine.toml:14: tunnel.cipher is "ROT13", must be one of'),
        ("colour = 1", RECIPE, "mine.toml:14: tunnel.colour is not a key of this tunnel"),
        ('inner = "ipx"', RECIPE, 'mine.toml:14: tunnel.inner is "ipx", must be one of'),
        ('outer = "ipv6"', RECIPE, 'mine.toml:14: tunnel.outer is "ipv6", must be'),
        ("clients = 3", RECIPE, "mine.toml:12: tunnel mytun-3: recipe cannot be a gateway"),
        ("[[recipe]]\npath = 5", RECIPE, "recipe must have the keys path and text, and no other"),
        ('[[recipe]]\npath = "x"\ntext = ""', RECIPE, 'recipe.path is "x", must be the path of'),
        (
            '[[recipe]]\npath = "./mytun.toml"\ntext = 5',
            RECIPE,
            "recipe.text is 5, must be a string",
        ),
    ],
)
def test_what_is_wrong_is_reported_at_the_line_of_the_study(
    tmp_path: Path, more: str, recipe: str | None, words: str
) -> None:
    if recipe is not None:
        (tmp_path / "mytun.toml").write_text(recipe, "utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(str(loaded(tmp_path, more + "\n")))
    assert words in str(caught.value)


def test_a_text_without_its_recipe_says_so() -> None:
    with pytest.raises(
        StudyError, match=r'tunnel.kind is "./mytun.toml", a recipe that is not part'
    ):
        parse_study(STUDY, "mine.toml")


def test_what_is_no_study_is_left_to_the_parser(tmp_path: Path) -> None:
    for text in ("x =", "tunnel = 5", "tunnel = [5]", "[[tunnel]]\nkind = 5", 'recipe = "x"'):
        assert with_recipes(text, tmp_path) == text


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    import tomllib  # noqa: PLC0415 - what is compared with

    text = text.encode("utf-8", "replace").decode().replace("\r", "")
    assert tomllib.loads(f"x = {quoted(text)}") == {"x": text}
