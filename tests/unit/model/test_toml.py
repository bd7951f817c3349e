"""TOML of strangers: what costs the parser memory by the square of its length is refused."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model import toml


@pytest.mark.parametrize(
    "key",
    [
        ".".join("a" * 33),
        " . ".join("a" * 33),
        ".".join(['"="'] * 33),
        ".".join(["'.'", "b"] * 17),
    ],
)
@pytest.mark.parametrize("around", ["{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}", "x = 1\n{}=1"])
def test_a_key_of_many_parts_is_refused_wherever_it_stands(key: str, around: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=r"more than 32 parts \(at line \d+, column"):
        toml.loads(around.format(key))


def test_what_nobody_writes_but_an_attacker_takes_no_time() -> None:
    for text in ("a" * 1_000_000, "a." * 500_000, '"' * 1_000_000, "'" * 999_999, "a b " * 250_000):
        with pytest.raises(tomllib.TOMLDecodeError):
            toml.loads(text)


@given(st.lists(st.sampled_from(["a", "b-1", "_c"]), min_size=1, max_size=32))
def test_other_texts_are_what_tomllib_reads(parts: list[str]) -> None:
    text = f"{'.'.join(parts)} = '10.0.0.1, 10.0.0.2' # www.example.org\n"
    assert toml.loads(text) == tomllib.loads(text)
