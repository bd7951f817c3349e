"""Who may run again: real programs and what measures time, as long as there are few of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from again import Failed

UNIT = ("tests/unit/lab/test_a.py::test_b", "lab")
LAB = ("tests/lab/test_c.py::test_d[2 Mbit/s]@runs", "real")
REAL = ("tests/contract/test_e.py::test_f[pi@host]", "real")


def report(test: str, marker: str, *, failed: bool = True) -> Any:
    return SimpleNamespace(nodeid=test, keywords={marker: 1, "test_x": 1}, failed=failed)


@pytest.mark.parametrize(
    ("reports", "written"),
    [
        ([report(*LAB), report(*REAL), report(*UNIT, failed=False)], True),
        ([report(*LAB), report(*UNIT)], False),
        ([report(*LAB, failed=False)], False),
        ([report(f"{number}{LAB[0]}", "real") for number in range(21)], False),
    ],
)
def test_only_a_few_tests_of_real_programs_run_again(
    tmp_path: Path, reports: list[Any], written: bool
) -> None:
    failed = Failed(path := tmp_path / "failed")
    for one in reports:
        failed.pytest_runtest_logreport(one)
    failed.pytest_sessionfinish()
    assert path.exists() == written
    if written:
        assert path.read_text(encoding="utf-8").splitlines() == [
            "tests/lab/test_c.py::test_d[2 Mbit/s]",
            "tests/contract/test_e.py::test_f[pi@host]",
        ]


def test_what_cannot_be_collected_does_not_run_again(tmp_path: Path) -> None:
    failed = Failed(path := tmp_path / "failed")
    failed.pytest_runtest_logreport(report(*LAB))
    collected: Any = SimpleNamespace(nodeid="tests/lab/test_c.py", failed=True)
    failed.pytest_collectreport(collected)
    failed.pytest_sessionfinish()
    assert not path.exists()
