"""What was skipped is what tests/skips.toml says, no more and no less; else the session fails."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from again import without_group
from tunnelmark.hosts.features import has_kernel
from tunnelmark.lab.awake import Awake
from tunnelmark.vmimage import cache as images
from tunnelmark.vmimage.cache import find
from tunnelmark.vmimage.suites import SUITES

_LIST: Final = Path(__file__).with_name("skips.toml")
_FAULTS: Final = 6
"""Exit status of pytest then: not that of failed tests, which may run again (tests/again.py)."""


@cache
def nobody_reads_this() -> bool:
    """Say whether another user can run this Python and this checkout."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    words = [*user, sys.executable, "-c", "import tunnelmark.hosts.local"]
    return subprocess.run(words, capture_output=True, check=False, cwd="/").returncode == 0


def _user_namespaces() -> bool:
    words = ["unshare", "--user", "--map-root-user", "--net", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def has_tools() -> bool:
    """Say whether scripts/engines has its tools; their last part is QEMU."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tunnelmark/cross"
    return (Path(os.environ.get("TUNNELMARK_CROSS") or cache) / "qemu").exists()


def iptfs_kernel() -> str | None:
    """Return the release of a user's own kernel with IP-TFS that an image of forky has, or None."""
    return next(
        (
            image.kernel_release
            for folder in (images.user_cache(), images.SYSTEM_CACHE)
            for image in images.images(folder)
            if images.is_own_of(image, SUITES["forky"])
            and any(module.endswith("/xfrm_iptfs.ko") for module in image.modules)
        ),
        None,
    )


def masque_program() -> str | None:
    """Return the program of the tunnel masque, if it is where drivers look for it."""
    return shutil.which("tunnelmark-masque", path=f"{os.environ.get('PATH', '')}:/usr/local/bin")


def tailscale_control() -> str | None:
    """Return the program of the tunnel tailscale that is ours; Tailscale's are built with it."""
    name = "tunnelmark-tailscale-control"
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/bin")


CONDITIONS: Final[dict[str, Callable[[], bool]]] = {
    "not root": lambda: os.geteuid() != 0,
    "no kernel of ours has ovpn_dco_v2": lambda: not has_kernel("ovpn_dco_v2"),
    "no image of trixie-backports": lambda: find(SUITES["trixie-backports"]) is None,
    "no image of forky": lambda: find(SUITES["forky"]) is None,
    "no image of forky with xfrm_iptfs": lambda: iptfs_kernel() is None,
    "idle cores may sleep": lambda: Awake().problem() is not None,
    "the kernel has ESP": lambda: has_kernel("esp"),
    "nobody cannot read Python or this checkout": lambda: not nobody_reads_this(),
    "no chromium": lambda: shutil.which("chromium") is None,
    "no tshark": lambda: shutil.which("tshark") is None,
    "no tunnelmark-masque": lambda: masque_program() is None,
    "no tunnelmark-tailscale-control": lambda: tailscale_control() is None,
    "no SoftEther that serves SSTP": lambda: "TUNNELMARK_SOFTETHER" not in os.environ,
    "no tools for other architectures": lambda: not has_tools(),
    "no user namespaces": lambda: not _user_namespaces(),
}


@dataclass(frozen=True)
class Expected:
    """One entry of the list."""

    tests: str
    where: str
    reason: str
    marker: str | None = None

    def covers(self, test: str, markers: frozenset[str]) -> bool:
        return (self.marker is None or self.marker in markers) and bool(
            re.fullmatch(self.tests, test)
        )


def expected() -> list[Expected]:
    """Read the list; an unknown key or condition is an error."""
    document = tomllib.loads(_LIST.read_text(encoding="utf-8"))
    entries = [Expected(**entry) for entry in document["skip"]]
    for entry in entries:
        assert entry.where in CONDITIONS, entry.where
    return entries


class Skips:
    """Collects how tests ended; only where all reports come together."""

    def __init__(self, entries: list[Expected]) -> None:
        self._entries = entries
        self._ran: dict[str, frozenset[str]] = {}
        self._skipped: dict[str, tuple[frozenset[str], str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test, markers = without_group(report.nodeid), frozenset(report.keywords)
        if report.skipped:
            words = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self._skipped[test] = (markers, str(words))
        elif report.when == "call":
            self._ran[test] = markers

    def faults(self) -> list[str]:
        """Return what is not as the list says."""
        holds = {entry.where: CONDITIONS[entry.where]() for entry in self._entries}
        due = [entry for entry in self._entries if holds[entry.where]]
        unexpected = [
            f"{test} was skipped, and tests/skips.toml does not say so: {words}"
            for test, (markers, words) in self._skipped.items()
            if not any(entry.covers(test, markers) for entry in due)
        ]
        return unexpected + [
            f"{test} ran, and tests/skips.toml says that it cannot: {entry.reason}"
            for test, markers in self._ran.items()
            for entry in due
            if entry.covers(test, markers)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.faults() and session.exitstatus in {
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
        }:
            session.exitstatus = _FAULTS

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{len(self._skipped)} skipped")
        for fault in self.faults():
            terminalreporter.write_line(f"error: {fault}", red=True)


def register(config: pytest.Config) -> None:
    """Watch the session, where all of its reports come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(expected()), "tunnelmark-skips")
