"""Rules for all tests: what runs where, beside what, and how often."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import again
import skips
from places import Places
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts import vm_payload
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.lab.awake import Awake
from tunnelmark.vmimage import build
from tunnelmark.vmimage.cache import Image

# A busy machine takes as long as it likes for an example: how long it took says nothing. The same
# examples in every run: what fails here fails everywhere (scripts/fuzz looks for new ones).
settings.register_profile("shared", deadline=None, derandomize=True)
settings.load_profile("shared")

_PLACES = pytest.StashKey[Places]()
_TESTS = Path(__file__).parent
_LONGEST = ("machine", "all-tunnels", "all-gateways", "studies", "packaging")
"""Groups that workers begin with, in this order: what takes longest must not come last.

Behind them come single tests: a worker with a group of one test is given the next group too, which
then waits for it.
"""
_WITH_OWN_MACHINES = ("test_suites.py", "test_studies.py")
"""Behind the other tests of the group ``machine``: theirs is not booted twice, nor idle beside."""

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them all programs
# that they start: some of these are ended that way.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    again.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    skips.register(config)
    again.register(config)


# First: xdist reads the groups when it sees the items, and marks that come later are lost.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by place, and put what takes longest first."""
    for item in items:
        if item.path.is_relative_to(_TESTS / "truth"):
            item.add_marker(pytest.mark.timing)
        real = item.path.is_relative_to(_TESTS / "contract")
        if real or any(item.get_closest_marker(name) is not None for name in ("timing", "lab")):
            item.add_marker(again.MARKER)
        if item.get_closest_marker("lab") is not None:
            # Under a name that is no folder's: those are among the keywords of a report too.
            item.add_marker(pytest.mark.needs_root)
        if item.get_closest_marker("machine") is not None:
            item.add_marker(pytest.mark.xdist_group("machine"))
        if item.path.is_relative_to(_TESTS / "packaging"):
            item.add_marker(pytest.mark.xdist_group("packaging"))
    items.sort(key=_place_in_order)


def _place_in_order(item: pytest.Item) -> tuple[int, int]:
    """Return where a test comes; all others stay as they were collected (scripts/test)."""
    groups = {mark.args[0] for mark in item.iter_markers("xdist_group")}
    first = next((n for n, name in enumerate(_LONGEST) if name in groups), len(_LONGEST))
    own = _WITH_OWN_MACHINES if "machine" in groups else ()
    return first, own.index(item.path.name) + 1 if item.path.name in own else 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("lab") is not None and os.geteuid() != 0:
        pytest.skip("needs root: network namespaces are made")


@pytest.fixture(scope="session", autouse=True)
def awake() -> Iterator[Awake]:
    """Idle cores wait awake, as in a run: tests measure in this process too."""
    with Awake() as made:
        yield made


@pytest.fixture(scope="session")
def image() -> Image:
    """What machines boot from; built once, by whoever comes first."""
    return build.ensure(clock=time.monotonic, say=lambda _step: None)


@pytest.fixture(scope="session")
def payload() -> Payload:
    return vm_payload.installed()


@pytest.fixture(scope="session")
def places(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Places]:
    """Where real tunnels run; the machine that some need boots with the first and then stays."""
    with Ledger() as ledger:
        made = Places(ledger, find_engine(), tmp_path_factory.mktemp("logs"))
        request.config.stash[_PLACES] = made
        yield made
        made.close()


# Behind the fixtures of modules, which use the machine until then.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the machine with the last test that needs it: idle, it still takes a tenth of a core."""
    if (
        item.get_closest_marker("machine") is not None
        # Behind the last test of all the fixture has ended it.
        and nextitem is not None
        and nextitem.get_closest_marker("machine") is None
        and _PLACES in item.config.stash
    ):
        item.config.stash[_PLACES].close()
