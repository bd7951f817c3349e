"""Several things at a time that do not depend on each other, such as a request to each host."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(*jobs: Callable[[], T], at_once: int | None = None) -> list[T]:
    """Do all of them, or ``at_once`` of them, at a time; return what they return, in order.

    All have ended when this returns. If some fail, the first in order raises. Not for what starts a
    process that goes on: it would end with the thread that started it.
    """
    with ThreadPoolExecutor(max_workers=max(1, min(at_once or len(jobs), len(jobs)))) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]
