"""Hold what a reader sees to the house's words: python scripts/prose.py FILE…; status 1 if not.

Pages (``.md``): proselint does the search, with its own checks and the words of scripts/words.toml;
code, headings and the targets of links are left out. Python: the same words, without proselint's
checks, in the strings that the program prints (below ``src``), in docstrings and in comments.
Rust and TOML: the words, in strings and comments. Templates (``.j2``): the words, in their text and
their markup.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from proselint.checks import __register__ as its_own
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, types
from proselint.tools import LintFile, LintResult

WORDS: Final = Path(__file__).with_name("words.toml")
_CODE: Final = re.compile(
    r"^```.*?^```$|``[^`\n]+``|`[^`\n]*`|\]\([^)\n]*\)|^#+ [^\n]*$", re.MULTILINE | re.DOTALL
)
_TAGS: Final = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_VALUE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_RUST_STRING: Final = re.compile(r'(?<![\w\'])b?"((?:[^"\\]|\\.)*)"', re.DOTALL)
_RUST_COMMENT: Final = re.compile(r"^(|.*\s)//[/!]? ?(.*)$")
_QUANTITY: Final = re.compile(r"[-+]?[0-9.]+ \S+")
_SOME_NUMBER: Final = "99"
"""Stands for a value that a text has at run time, so that "{size} byte" is found."""
_OFF: Final = {
    "archaism": "it takes British spelling for archaic",
    "redundancy.misc.after_the_deadline": "it sees words that only stand beside each other",
    "typography": "quotation marks are straight, as in code",
    "weasel_words": "a text about statistics says very little without them",
    "misc.but": "a sentence may begin with but",
}
"""Checks of proselint that are off, and why."""


def main(names: list[str]) -> int:
    """Print what is found in the files; return 1 if there is anything."""
    found = [f"{name}:{line}" for name in names for line in _faults_of(Path(name))]
    print("\n".join(found) if found else f"{len(names)} files, nothing found")
    return 1 if found else 0


def _faults_of(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        # The strings of a test are often wrong on purpose.
        printed = faults_of_strings(text) if "src" in path.parts else []
        return [*printed, *faults_of_comments(text)]
    kinds = {".j2": faults_of_template, ".rs": faults_of_rust, ".toml": faults_of_toml}
    return kinds.get(path.suffix, faults)(text)


def faults(text: str) -> list[str]:
    """Return a line for each fault of a page: line, column, what it is and what to write."""
    file = LintFile("text", _without_code(text))
    results: list[LintResult] = file.lint(_config())
    return [
        f"{line}:{column - 1}: {found.check_path}: {found.message}"
        for found, (line, column) in results
        # Figures that follow each other are no word twice.
        if re.search("[A-Za-z]", file.content[slice(*found.span)])
    ]


def faults_of_strings(text: str) -> list[str]:
    """Return a line for each fault in the strings of a Python file that a user may see."""
    return [
        fault for line, words in sorted(_strings(ast.parse(text))) for fault in _in(words, line)
    ]


def faults_of_comments(text: str) -> list[str]:
    """Return a line for each fault in docstrings and comments, which readers of the code see.

    Lines of comments that follow each other are one text.
    """
    found = [
        (node.lineno, str(node.value.value))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#: ")
            if last == token.start[0] - 1 and found:
                line, before = found.pop()
                found.append((line, f"{before} {words}"))
            else:
                found.append((token.start[0], words))
            last = token.start[0]
    return [fault for line, words in sorted(found) for fault in _in(_CODE.sub("", words), line)]


def faults_of_rust(text: str) -> list[str]:
    """Return a line for each fault in the strings and comments of a Rust file.

    Lines of comments that follow each other are one text.
    """
    found: list[tuple[int, str]] = []
    code, last = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        comment = _RUST_COMMENT.match(line)
        code.append(comment[1] if comment else line)
        if comment is None:
            continue
        if last == number - 1 and found:
            begun, before = found.pop()
            found.append((begun, f"{before} {comment[2]}"))
        else:
            found.append((number, comment[2]))
        last = number
    source = "\n".join(code)
    for match in _RUST_STRING.finditer(source):
        words = re.sub(r"\{[^{}]*\}", _SOME_NUMBER, re.sub(r"\\\n\s*", "", match[1]))
        if " " in words:
            found.append((source.count("\n", 0, match.start()) + 1, words))
    return [fault for line, words in sorted(found) for fault in _in(_CODE.sub("", words), line)]


def faults_of_toml(text: str) -> list[str]:
    """Return a line for each fault in the sentences of a study or a recipe, and in its comments.

    A quantity alone is as a study writes it. TOML does not say where a string stands: its faults
    are on line 0.
    """
    found = [(0, words) for words in _sentences(tomllib.loads(text))]
    for number, line in enumerate(text.splitlines(), 1):
        before, mark, words = line.partition("#")
        if mark and before.count('"') % 2 == 0:
            found.append((number, words))
    return [fault for line, words in found for fault in _in(_CODE.sub("", words), line)]


def _sentences(value: object) -> Iterator[str]:
    if isinstance(value, str) and " " in value and not _QUANTITY.fullmatch(value):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _sentences(inner)


def faults_of_template(text: str) -> list[str]:
    """Return a line for each fault in the text of a Jinja template."""
    plain = _VALUE.sub(_SOME_NUMBER, _TAGS.sub(_as_lines, text))
    return [
        fault for number, line in enumerate(plain.splitlines(), 1) for fault in _in(line, number)
    ]


def _as_lines(match: re.Match[str]) -> str:
    return " " + "\n" * match[0].count("\n")


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal with more than one word; none of docstrings."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(value) for node in joined for value in node.values}
    formats = {id(n.format_spec) for n in ast.walk(tree) if isinstance(n, ast.FormattedValue)}
    for node in joined:
        if id(node) in formats:
            continue
        yield node.lineno, "".join(map(_as_printed, node.values))
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    for text in texts:
        if id(text) not in docstrings | parts and " " in str(text.value):
            yield text.lineno, str(text.value)


def _as_printed(part: ast.expr) -> str:
    """Return a part of an f-string, with a number for a value; its format may print a unit."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    spec = part.format_spec if isinstance(part, ast.FormattedValue) else None
    ending = spec.values[-1] if isinstance(spec, ast.JoinedStr) and spec.values else None
    percent = isinstance(ending, ast.Constant) and str(ending.value).endswith("%")
    return _SOME_NUMBER + "%" * percent


def _in(words: str, line: int) -> list[str]:
    """Return a line for each of our words in a text, wherever it breaks its lines."""
    text = " ".join(words.split())
    return [
        f"{line}: tunnelmark.{section}: '{match[0]}': {instead}."
        for section, pattern, instead in patterns()
        for match in pattern.finditer(text)
    ]


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Return section, pattern and advice of each of our words."""
    return tuple(
        (section, re.compile(rf"(?<!\w)(?:{word})(?!\w)", re.IGNORECASE), instead)
        for section, words in _words().items()
        for word, instead in words.items()
    )


def _without_code(text: str) -> str:
    """Cover code and headings, so that lines and columns stay where they are."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]", "#", code[0]), text)


def _config() -> dict[str, object]:
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many((*its_own, *_ours()))
    checks = {**dict.fromkeys(_OFF, False), **DEFAULT["checks"], "tunnelmark": True}
    return {**DEFAULT, "checks": {**checks, **dict.fromkeys(_OFF, False)}, "max_errors": 1000}


def _ours() -> tuple[Check, ...]:
    return tuple(
        Check(
            check_type=types.PreferredForms(items=words),
            path=f"tunnelmark.{section}",
            message="'{1}': {0}.",
        )
        for section, words in _words().items()
        if section != "code"
    )


def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
