import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.study.lines import Path, line_index, line_of

PLACES = '''\
# a comment with [brackets] and key = 1
format = 1
"quoted key" = 'x'
text = """
[not.a.table]
key = 2
a quote at the end""""
literal = \'\'\'
[[nor]]
\'\'\'
many = [
  1,  # one ]
  [2, "]"],

  {a = 3, b.c = [4,
    5]},
]
a.b.c = 1

[table]
key = 1
when = 1979-05-27 07:32:00Z # a date with a space

[[array]]
key = 1
[array.below]
key = 2
[[array]]
[[array.inner]]
key = 3
[[array.inner]]
'''


def test_every_place_of_a_document_is_known() -> None:
    tomllib.loads(PLACES)
    index = line_index(PLACES)
    assert {path: index[path] for path in index if path} == {
        ("format",): 2,
        ("quoted key",): 3,
        ("text",): 4,
        ("literal",): 8,
        ("many",): 11,
        ("many", 0): 12,
        ("many", 1): 13,
        ("many", 1, 0): 13,
        ("many", 1, 1): 13,
        ("many", 2): 15,
        ("many", 2, "a"): 15,
        ("many", 2, "b"): 15,
        ("many", 2, "b", "c"): 15,
        ("many", 2, "b", "c", 0): 15,
        ("many", 2, "b", "c", 1): 16,
        ("a",): 18,
        ("a", "b"): 18,
        ("a", "b", "c"): 18,
        ("table",): 20,
        ("table", "key"): 21,
        ("table", "when"): 22,
        ("array",): 24,
        ("array", 0): 24,
        ("array", 0, "key"): 25,
        ("array", 0, "below"): 26,
        ("array", 0, "below", "key"): 27,
        ("array", 1): 28,
        ("array", 1, "inner"): 29,
        ("array", 1, "inner", 0): 29,
        ("array", 1, "inner", 0, "key"): 30,
        ("array", 1, "inner", 1): 31,
    }


def test_an_implied_table_stands_at_its_own_header() -> None:
    index = line_index("[a.b]\nx = 1\n[a]\ny = 2\n")
    assert index[("a",)] == 3
    assert index[("a", "b")] == 1


def test_windows_line_ends_count_once() -> None:
    assert line_index("a = 1\r\n\r\nb = 2\r\n")[("b",)] == 3


def test_an_escaped_key_is_the_key_that_toml_means() -> None:
    text = '"a\\u0041\\tb\\"" = 1\n'
    assert set(tomllib.loads(text)) == {'aA\tb"'}
    assert line_index(text)[('aA\tb"',)] == 1


def test_the_line_of_something_missing_is_that_of_what_is_around_it() -> None:
    index = line_index("[a]\nb = 1\n")
    assert line_of(index, ("a", "c")) == 1
    assert line_of(index, ("x", 3, "y")) == 1
    assert line_of(index, ("a", "b", 4)) == 2


def test_a_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        line_index("a = 1\n= 2\n")


class Writer:
    """Writes random TOML and notes in which line it puts what."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.places: dict[Path, int] = {(): 1}

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def put(self, text: str) -> None:
        self.text += text

    def noise(self) -> str:
        return self.draw(st.sampled_from(["", "", "\n", "# x = [1, 'no\n", "  \n\t", "#\n\n"]))

    def table(self, path: Path, depth: int) -> None:
        for key in self.draw(st.lists(KEYS, max_size=4, unique=True)):
            self.put(self.noise())
            self.places[(*path, key)] = self.line
            self.put(f"{self.quoted(key)}{self.draw(SPACE)}={self.draw(SPACE)}")
            self.value((*path, key), depth, inside=False)
            self.put(self.draw(st.sampled_from(["\n", " # ] end\n"])))

    def value(self, path: Path, depth: int, *, inside: bool) -> None:
        shape = self.draw(st.sampled_from(["plain", "array", "inline"] if depth else ["plain"]))
        if shape == "plain":
            plain = SINGLE if inside else SINGLE + LONG
            self.put(self.draw(st.sampled_from(plain)))
        elif shape == "array":
            self.put("[")
            for position in range(self.draw(st.integers(0, 3))):
                self.put("" if inside else self.noise())
                self.places[(*path, position)] = self.line
                self.value((*path, position), depth - 1, inside=inside)
                self.put(self.draw(st.sampled_from([",", " ,"])))
            self.put("" if inside else self.noise())
            self.put("]")
        else:
            self.put("{")
            for number, key in enumerate(self.draw(st.lists(KEYS, max_size=2, unique=True))):
                self.put(", " if number else " ")
                self.places[(*path, key)] = self.line
                self.put(f"{self.quoted(key)} = ")
                self.value((*path, key), depth - 1, inside=True)
            self.put("}")

    def quoted(self, key: str) -> str:
        if key.isidentifier() and key.isascii():
            return key
        return '"' + key.replace('"', '\\"') + '"'


KEYS = st.sampled_from(["a", "b", "key", "x y", 'q"uote', "[z]", "ä", "#"])
SPACE = st.sampled_from(["", " ", "\t "])
SINGLE = ["1", "-2.5e3", "true", '"]"', "'}'", '"a # b"', '"\\""', "1979-05-27 07:32:00", "'a = 1'"]
LONG = ['"""\n[x]\na = 1\n"""', "'''\n]\n'''''", '"""a""\\"\n"""""']


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Path, int]]:
    writer = Writer(draw)
    writer.table((), 2)
    for number in range(draw(st.integers(0, 4))):
        writer.put(writer.noise())
        if draw(st.booleans()):
            path: Path = (f"table{number}",)
            writer.places[path] = writer.line
            writer.put(f"[ table{number} ] # here\n")
        else:
            path = ("array", sum(len(p) == 2 and p[0] == "array" for p in writer.places))
            writer.places.setdefault(("array",), writer.line)
            writer.places[path] = writer.line
            writer.put("[[array]]\n")
        writer.table(path, 2)
    return writer.text, writer.places


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    if isinstance(value, list):
        for position, inner in enumerate(value):
            yield from paths(inner, (*path, position))


@given(documents())
def test_places_are_those_of_the_writer_and_of_nothing_else(
    written: tuple[str, dict[Path, int]],
) -> None:
    text, places = written
    assert set(places) == set(paths(tomllib.loads(text)))
    assert dict(line_index(text)) == places
