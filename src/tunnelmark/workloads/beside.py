"""Several loads of one trial at the same time, each on a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def together(jobs: Sequence[Callable[[], _T]]) -> list[_T]:
    """Run all at once and return what they return, in order, when the last one has ended.

    The first error is raised then, so nothing is left running behind it. What a job starts on a
    host must end within the job: a process ends with the thread that started it.
    """
    if len(jobs) == 1:
        return [jobs[0]()]
    results: list[_T | None] = [None] * len(jobs)
    errors: list[BaseException] = []

    def run(place: int, job: Callable[[], _T]) -> None:
        try:
            results[place] = job()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(place, job), name=f"load {place}")
        for place, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results  # type: ignore[return-value]  # every job has returned
