"""What a trial frees is used by the next one: counted in pages that the system hands out."""

import os
import platform
import subprocess
import sys

import pytest

from tunnelmark.sim.memory import KEPT_BY_ENGINE

_TRIALS = """
import resource, sys
if sys.argv[1] == "asks":
    from tunnelmark.sim.memory import keep_freed_memory
    keep_freed_memory()
bytearray(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    bytearray(1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = (1 << 20) // os.sysconf("SC_PAGE_SIZE")


def faults(word: str, environment: dict[str, str]) -> int:
    words = [sys.executable, "-c", _TRIALS, word]
    env = {**os.environ, **environment}
    return int(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is the GNU C library's")
def test_a_process_keeps_what_it_frees_where_dask_asks_for_the_opposite() -> None:
    as_dask_has_it = {"MALLOC_TRIM_THRESHOLD_": "65536"}
    assert faults("asks nothing", as_dask_has_it) > 100 * _PAGES
    assert faults("asks", as_dask_has_it) < 4 * _PAGES
    # The engine is asked by its environment.
    assert faults("asks nothing", dict(KEPT_BY_ENGINE)) < 4 * _PAGES
