"""Tests that may run again, alone: scripts/test gives them a second chance at its end.

The machine is shared and does much at once: what starts real programs or measures time can fail
there without a fault in the code. A fault in the code fails alone too. All other tests have one
chance.
"""

import re
from pathlib import Path
from typing import Final

import pytest

_OPTION: Final = "--failed-to"
MARKER: Final = "real"
"""Of those that may. Not a folder's name: those are among the keywords of a test too."""
_MOST: Final = 20
"""More failures than these are no bad luck."""
_GROUP: Final = re.compile(r"@[^\]@]+$")


def without_group(test: str) -> str:
    """Return the id of a test without what pytest-xdist appends."""
    return _GROUP.sub("", test)


class Failed:
    """Writes the failed tests to a file, a line each; only where all reports come together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tests[without_group(report.nodeid)] = MARKER in report.keywords

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tests[report.nodeid] = False

    def pytest_sessionfinish(self) -> None:
        if 0 < len(self._tests) <= _MOST and all(self._tests.values()):
            self._path.write_text("".join(f"{test}\n" for test in self._tests), encoding="utf-8")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        _OPTION,
        metavar="FILE",
        type=Path,
        help="write the failed tests to FILE if each of them may run again, alone",
    )


def register(config: pytest.Config) -> None:
    """Watch the session, where all of its reports come together."""
    path = config.getoption(_OPTION)
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failed(path), "tunnelmark-again")
