"""Recipes are parsed strictly: an error names the place, and nothing else is raised."""

import contextlib
import tomllib
from importlib.resources import files
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import tunnelmark.tunnels
from tunnelmark.model.errors import StudyError
from tunnelmark.tunnels.recipe_fill import fill, names_in
from tunnelmark.tunnels.recipe_text import (
    LARGEST_RECIPE_BYTES,
    Recipe,
    params_of,
    parse_recipe,
)

FOLDER = files(tunnelmark.tunnels) / "recipes"
TEXTS = {entry.name: entry.read_text("utf-8") for entry in FOLDER.iterdir()}
SOCAT = TEXTS["socat_tls.toml"]


def changed(**more: Any) -> str:
    """Return socat's recipe with other values; None takes a key away."""
    document = tomllib.loads(SOCAT) | more
    return tomli_w.dumps({key: value for key, value in document.items() if value is not None})


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_recipes_of_the_package_are_right(name: str) -> None:
    assert parse_recipe(TEXTS[name], name).format == 1


@pytest.mark.parametrize("name", ["socat_tls.toml", "vtun.toml"])
def test_those_to_begin_from_are_short(name: str) -> None:
    assert len(TEXTS[name].splitlines()) < 60


def test_a_recipe_is_read() -> None:
    recipe = parse_recipe(SOCAT, "socat_tls.toml")
    assert recipe.wire.tcp == ("tls",)
    assert [daemon.side for daemon in recipe.daemon] == ["server", "client"]
    params = params_of(recipe).model_validate({})
    assert params.columns()["cipher"] == "TLS_AES_256_GCM_SHA384"
    assert params.columns()["mtu_bytes"] == 1500


DAEMON = {"side": "both", "command": ["socat"], "interface": "x"}
KEY = {"command": ["socat"], "reads": "(?P<a>x)"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is not valid TOML for a recipe: Invalid value"),
        *(
            (
                changed(daemon=[{**DAEMON, "private_dirs": dirs}]),
                f"private_dirs has {dirs[-1]}, must",
            )
            for dirs in (["/run/own"], ["/run", "/var/lib/own"], ["/run", "/run/../srv"])
        ),
        ("x = " + "[" * 5000, "is not valid TOML for a recipe: "),
        ("#" * (LARGEST_RECIPE_BYTES + 1), "has 65537 bytes, must be at most 65536"),
        ("format = 2024-01-01", "is not valid TOML for a recipe: 2024-01-01 is a date"),
        (changed(format=2), "format: Input should be 1"),
        (changed(title=None), "title: Field required"),
        (changed(colour="red"), "colour: Extra inputs are not permitted"),
        (changed(mtu_bytes="1500"), "mtu_bytes: Input should be a valid integer"),
        (changed(data_path="magic"), "data_path: Input should be 'user space', 'kernel', "),
        (changed(ports={"tls": 65500}), "ports.tls: Input should be less than or equal to 65471"),
        (changed(ports={"other": 1}), "wire has the port 'tls', which is not in ports"),
        (changed(daemon=[]), "daemon: Tuple should have at least 1 item"),
        (changed(daemon=[DAEMON | {"command": ["sh"]}]), "daemon.0.command begins with 'sh', must"),
        (changed(daemon=[DAEMON | {"side": "client"}]), "0 daemons of the server have an interf"),
        (changed(daemon=[DAEMON, DAEMON]), "2 daemons of the client have an interface, must be"),
        (
            changed(daemon=[DAEMON | {"ready": "("}]),
            "daemon.0.ready: is not a regular expression: m",
        ),
        (changed(daemon=[DAEMON | {"listens": "dns"}]), "daemon.0.listens has the port 'dns', wh"),
        (changed(daemon=[DAEMON | {"command": ["socat", "$x"]}]), "has a lone $ at character 1"),
        (
            changed(daemon=[DAEMON | {"command": ["socat", "${inner.mine}"]}]),
            "daemon.0.command has ${inner.mine}; known: certificate.here, ",
        ),
        (
            changed(key={"a": {"bytes": 8}}, daemon=[DAEMON | {"command": ["socat", "${key.a}"]}]),
            "daemon.0.command has the key ${key.a}, which everyone could read there",
        ),
        (changed(key={"a": {}}), "key.a: has either bytes or command"),
        (changed(key={"a": KEY | {"reads": "x"}}), "key.a: reads has no named group"),
        (changed(key={"a": {"command": ["x"]}}), "key.a: has reads if, and only if, it has a"),
        (changed(agreed=[{"what": "x", "log": "y"}]), "agreed.0.log: must have one group"),
        (changed(file=[{"name": "../x", "text": ""}]), "file.0.name: String should match"),
        (
            changed(wire={"tcp": ["tls"], "quic_least_bytes": 47}),
            "wire: has quic_least_bytes, so it must have udp ports only",
        ),
        (changed(cipher="${agreed.other}"), "cipher has ${agreed.other}; known: agreed.suite, "),
        (
            changed(file=[{"name": "x", "text": "${agreed.suite}"}]),
            "file.0.text has ${agreed.suite}; known: certificate.here, ",
        ),
        (changed(most_mtu_bytes=1499), "mtu_bytes is 1500, most_mtu_bytes is 1499"),
        (changed(wire={}), "wire: has neither udp nor tcp ports"),
        (changed(wire={"udp": ["tls"], "tcp": ["tls"]}), "overhead is given, so wire must have"),
        (
            changed(parameters={"count": {"choices": [1], "description": "x"}}),
            "parameters.count is a key that every tunnel has",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_recipe(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert words in str(caught.value)


def test_a_study_can_set_no_larger_mtu_than_the_recipe_has() -> None:
    params = params_of(parse_recipe(TEXTS["masque.toml"], "masque.toml"))
    assert params.model_validate({"mtu_bytes": 1413}).columns()["mtu_bytes"] == 1413
    with pytest.raises(ValidationError):
        params.model_validate({"mtu_bytes": 1414})


def test_templates_are_filled_once() -> None:
    assert list(names_in("a${b}$$${c.d}")) == ["b", "c.d"]
    assert fill("a${b}$$${c.d}", {"b": "${c.d}", "c.d": "$$"}) == "a${c.d}$$$"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=8), part, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(Recipe.model_fields)), anything)
def test_no_value_of_a_key_is_too_strange(key: str, value: Any) -> None:
    document = tomllib.loads(SOCAT) | {key: value}
    try:
        text = tomli_w.dumps(document)
    except (TypeError, ValueError):  # null, a number that TOML has not
        return
    with contextlib.suppress(StudyError):
        parse_recipe(text, "mine.toml")


@given(st.data())
def test_no_damage_to_a_recipe_is_too_strange(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SOCAT)))
    length = data.draw(st.integers(0, 40))
    text = SOCAT[:at] + data.draw(st.text(max_size=20)) + SOCAT[at + length :]
    with contextlib.suppress(StudyError):
        parse_recipe(text, "mine.toml")


def test_a_private_directory_may_lie_in_one_before_it() -> None:
    dirs = ["/run", "/run/own", "/etc"]
    recipe = parse_recipe(changed(daemon=[{**DAEMON, "private_dirs": dirs}]), "r.toml")
    assert recipe.daemon[0].private_dirs == tuple(dirs)
