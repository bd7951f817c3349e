"""Rules for all tests."""

import pytest
from hypothesis import settings

# A busy machine takes as long as it likes for an example: how long it took says nothing.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a lab test that failed once more, and show that it did.

    These tests measure on a machine that others share: one that stands still for a second fails a
    test of timing without any fault in the code. A fault in the code fails twice.
    """
    for item in items:
        if item.get_closest_marker("lab") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))
