"""What a reader sees is in the words of docs/style.md: pages, templates, strings of the program."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import prose
import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "programs").glob("*/*.md")),
]
SOURCE = ROOT / "src" / "tunnelmark"
PACKAGES = sorted(
    path.name
    for path in SOURCE.iterdir()
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
)
TREE = ("src", "crates", "docs", "tests", "scripts", "bench", "fuzz")
OWN = {"words.toml", "test_prose.py"}
"""Files that have the old words on purpose."""
RECORD = ROOT / "docs" / "design.md"
"""Its entries have a date, and the names of that day."""
OLD = [pattern for section, pattern, _ in prose.patterns() if section == "old"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_fault(page: Path) -> None:
    assert prose.faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_the_program_prints_has_no_fault(package: str) -> None:
    found = []
    place = SOURCE / package
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        faults = prose.faults_of_strings(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(ROOT)}:{fault}" for fault in faults]
    for path in sorted(place.rglob("*.j2")):
        faults = prose.faults_of_template(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(ROOT)}:{fault}" for fault in faults]
    assert found == []


@pytest.mark.parametrize("folder", [*TREE, "."])
def test_the_old_strings_of_the_list_are_gone_from_the_whole_tree(folder: str) -> None:
    found = []
    for path in _texts(folder):
        words = " ".join(path.read_text(encoding="utf-8").split())
        found += [
            f"{path.relative_to(ROOT)}: {old.search(words)}" for old in OLD if old.search(words)
        ]
    assert found == []


OLD_NAMES = re.compile(r"(?<![a-z])(?:mends?|mended|lanes?|askers?|told)(?![a-z])", re.IGNORECASE)
"""Words of the list where they are a name or a key, or a part of one: ``_MENDS``, ``mend=``."""


@pytest.mark.parametrize("folder", [*TREE, "."])
def test_nothing_is_named_by_an_old_word(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {old[0]}"
        for path in _texts(folder)
        if path != RECORD
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (old := OLD_NAMES.search(line))
    ]
    assert found == []


def _texts(folder: str) -> list[Path]:
    found = (ROOT / folder).glob("*" if folder == "." else "**/*")
    kinds = {".py", ".rs", ".md", ".toml", ".j2", ".js", ".sh", ".css"}
    return [
        path
        for path in sorted(found)
        if path.suffix in kinds and path.is_file() and path.name not in OWN
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A packet of 64 byte.\n", "1:12: tunnelmark.plural"),
        ("Fine.\n\nIt measured 1,472 byte and\nstopped.\n", "3:"),
        ("Say what is missing, and what brings it.\n", "tunnelmark.old"),
        ("Simply run it.\n", "tunnelmark.plain"),
        ("It ran very very well.\n", "lexical_illusions"),
    ],
)
def test_a_fault_is_found_with_its_place(text: str, found: str) -> None:
    (fault,) = prose.faults(text)
    assert found in fault


@pytest.mark.parametrize(
    "text",
    [
        "1 byte, 64 bytes, and byte 64 of a packet.\n",
        "`64 byte` is how a study says it.\n",
        '```toml\npayload_bytes = "64 byte"\n```\n',
        "[a page](simply.md)\n",
    ],
)
def test_code_and_right_words_are_left_alone(text: str) -> None:
    assert prose.faults(text) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('print(f"{size} byte")\n', ["1: tunnelmark.plural"]),
        (
            'x = 1\nraise E(\n    f"{name}: a packet "\n    "that is nowhere"\n)\n',
            ["3: tunnelmark.old"],
        ),
        (
            'x = 1\nraise E(\n    f"{name}: a packet "\n    "was handed on"\n)\n',
            ["3: tunnelmark.ours"],
        ),
        ('print(f"{share:.0%} of it")\n', ["1: tunnelmark.units"]),
        ('print(f"{share:+.1%}")\n', ["1: tunnelmark.units"]),
        ('print(f"{size}% of it")\n', ["1: tunnelmark.units"]),
        ('print(f"{size:.0f} % of it", "5 % of {:x}%")\n', []),
        ('"""A lane of frames."""\n', []),
        ("# A lane of frames.\n", []),
        ('KEYS = {"lane": "mend"}\n', []),
        ('print("64 bytes", 1, "byte")\n', []),
    ],
)
def test_strings_of_a_program_are_searched_by_themselves(source: str, found: list[str]) -> None:
    faults = prose.faults_of_strings(source)
    assert [fault.split(": '")[0] for fault in faults] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""A lane of frames."""\n', ["1: tunnelmark.ours"]),
        ('def f():\n    """Send.\n\n    A lane of frames.\n    """\n', ["2: tunnelmark.ours"]),
        ('x = 1\n"""In a lane."""\n', ["2: tunnelmark.ours"]),
        ("x = 1  # in 64 byte\n", ["1: tunnelmark.plural"]),
        ("# What is\n# told.\nx = 1\n", ["1: tunnelmark.code"]),
        ("x = 1  # in 64\n\n# byte\n", []),
        ("# As ``told`` says.\n", []),
        ('"""Of `64 byte`, in 64 bytes."""\nprint("lane")\n', []),
    ],
)
def test_docstrings_and_comments_are_searched_however_their_lines_break(
    source: str, found: list[str]
) -> None:
    faults = prose.faults_of_comments(source)
    assert [fault.split(": '")[0] for fault in faults] == found


@pytest.mark.parametrize("folder", ["src", "tests", "scripts", "bench", "fuzz"])
def test_readers_of_the_code_see_no_fault(folder: str) -> None:
    found = []
    for path in _texts(folder):
        if path.suffix == ".py":
            faults = prose.faults_of_comments(path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}:{fault}" for fault in faults]
    assert found == []


@pytest.mark.parametrize(
    ("folder", "kind", "faults_of"),
    [
        ("crates", ".rs", prose.faults_of_rust),
        ("fuzz", ".rs", prose.faults_of_rust),
        ("src", ".toml", prose.faults_of_toml),
    ],
)
def test_readers_of_the_engine_and_of_studies_see_no_fault(
    folder: str, kind: str, faults_of: Callable[[str], list[str]]
) -> None:
    found = []
    for path in _texts(folder):
        if path.suffix == kind:
            faults = faults_of(path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}:{fault}" for fault in faults]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('title = """\nFrom 25\nbyte."""\n', ["0: tunnelmark.plural"]),
        ('[[a]]\nb = [{ c = "is told" }]\n', ["0: tunnelmark.code"]),
        ('near = "64 byte"  # 64 byte\n', ["1: tunnelmark.plural"]),
        ('near = "64 byte"\nhere = "#8, 64 bytes"\n', []),
    ],
)
def test_sentences_and_comments_of_a_study_are_searched(source: str, found: list[str]) -> None:
    assert [fault.split(": '")[0] for fault in prose.faults_of_toml(source)] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('fn f() {\n    println!("{size} byte");\n}\n', ["2: tunnelmark.plural"]),
        ('    "a line that \\\n     was handed on"\n', ["1: tunnelmark.ours"]),
        ("/// What is\n/// told.\nfn f() {}\n", ["1: tunnelmark.code"]),
        ("let x = 1; // in 64 byte\n", ["1: tunnelmark.plural"]),
        ("/// What is\nfn told() {}\n", []),
        ('let told = put(b"").is_err(); let told = put(b"");\n', []),
        ('let told = "lane"; // `64 byte`, "64 bytes"\n', []),
    ],
)
def test_strings_and_comments_of_rust_are_searched(source: str, found: list[str]) -> None:
    assert [fault.split(": '")[0] for fault in prose.faults_of_rust(source)] == found


def test_a_template_is_searched_with_its_lines() -> None:
    text = "{# lane #}\n<p>{% if a %}\n{{ size }} byte{% endif %}</p>\n"
    (fault,) = prose.faults_of_template(text)
    assert fault.startswith("3: tunnelmark.plural")


def test_the_command_fails_where_something_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("64 byte\n", encoding="utf-8")
    assert prose.main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}:1:")
    page.write_text("64 bytes\n", encoding="utf-8")
    assert prose.main([str(page)]) == 0
    program = tmp_path / "src" / "program.py"
    program.parent.mkdir()
    program.write_text('print(f"{size} byte")\n', encoding="utf-8")
    assert prose.main([str(page), str(program)]) == 1
    # What a test says on purpose is not our text; what its comments say is.
    test = tmp_path / "test_program.py"
    test.write_text('print(f"{size} byte")\n', encoding="utf-8")
    assert prose.main([str(test)]) == 0
    test.write_text("x = 1  # 64 byte\n", encoding="utf-8")
    assert prose.main([str(test)]) == 1


def test_what_fuzz_runs_leave_is_not_spelt(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for name in ("docs/page.md", "fuzz/corpus/1", "fuzz/artifacts/a", "fuzz/seeds/1"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("proto" + "co\n", encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("codespell")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["./docs/page.md"]
