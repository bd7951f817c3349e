"""Each workload is found by its kind, and by the module of that name alone."""

import pytest

from tunnelmark.workloads.registry import workload_kind, workload_kinds


@pytest.mark.parametrize("kind", workload_kinds())
def test_a_workload_is_found_in_the_module_of_its_name(kind: str) -> None:
    assert workload_kind(kind) is workload_kinds()[kind]


@pytest.mark.parametrize("kind", ["", "base", "corpus", "unknown", "udp_echo.x", "../udp_echo"])
def test_a_kind_that_is_none_is_not_found(kind: str) -> None:
    assert workload_kind(kind) is None
