"""Rules for all tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a lab test that failed once more, and show that it did.

    These tests measure on a machine that others share: one that stands still for a second fails a
    test of timing without any fault in the code. A fault in the code fails twice.
    """
    for item in items:
        if item.get_closest_marker("lab") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))
