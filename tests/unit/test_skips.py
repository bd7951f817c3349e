"""The list of skips is held to what happens, in both directions."""

from typing import Any

import pytest

from skips import CONDITIONS, Expected, Skips, expected

HOLDS, DOES_NOT = "it holds", "it does not"
ENTRIES = [
    Expected(tests=r"a\.py::always", where=HOLDS, reason="never had"),
    Expected(tests=r"a\.py::never", where=DOES_NOT, reason="had here"),
    Expected(tests=".*", where=HOLDS, reason="needs root", marker="lab"),
]


class Report:
    def __init__(self, test: str, *, skipped: bool, markers: tuple[str, ...] = ()) -> None:
        # pytest-xdist puts the group behind the name.
        self.nodeid = f"{test}@machine"
        self.keywords = dict.fromkeys(markers, 1)
        self.skipped = skipped
        self.when = "call"
        self.longrepr = ("a.py", 1, "Skipped: no such program")


def faults(monkeypatch: pytest.MonkeyPatch, *reports: Any) -> list[str]:
    monkeypatch.setitem(CONDITIONS, HOLDS, lambda: True)
    monkeypatch.setitem(CONDITIONS, DOES_NOT, lambda: False)
    skips = Skips(ENTRIES)
    for report in reports:
        skips.pytest_runtest_logreport(report)
    return skips.faults()


def test_what_the_list_says_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = (
        Report("a.py::always", skipped=True),
        Report("a.py::never", skipped=False),
        Report("a.py::other", skipped=False),
        Report("b.py::tunnel", skipped=True, markers=("lab",)),
    )
    assert faults(monkeypatch, *reports) == []


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report("a.py::other", skipped=True), "skips.toml does not say so: Skipped: no such pro"),
        (Report("a.py::never", skipped=True), "a.py::never was skipped, and"),
        (Report("a.py::always", skipped=False), "a.py::always ran, and tests/skips.toml says"),
        (Report("b.py::x", skipped=False, markers=("lab",)), "that it cannot: needs root"),
    ],
)
def test_what_the_list_does_not_say_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, report: Report, words: str
) -> None:
    (fault,) = faults(monkeypatch, report)
    assert words in fault


def test_the_list_can_be_read() -> None:
    assert all(entry.reason for entry in expected())
