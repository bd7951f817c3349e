"""Several loads of one trial at the same time, each on a thread of its own."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tunnelmark.workloads.base import TrialContext

_T = TypeVar("_T")


def together(
    contexts: Sequence[TrialContext],
    job: Callable[[int, TrialContext], _T],
    *,
    failed: Callable[[_T], bool],
) -> list[_T]:
    """Run the job in each context at once and return what came of them, in order.

    When one has failed the others are asked to end early: half of a trial is no trial. The first
    error is raised when all have ended, so nothing is left running behind it. What a job starts
    on a host must end within the job: a process ends with the thread that started it.
    """
    over = threading.Event()
    results: list[_T | None] = [None] * len(contexts)
    errors: list[BaseException] = []

    def run(place: int, context: TrialContext) -> None:
        inner = dataclasses.replace(context, cancelled=lambda: over.is_set() or context.cancelled())
        try:
            result = results[place] = job(place, inner)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)
            over.set()
        else:
            if failed(result):
                over.set()

    threads = [
        threading.Thread(target=run, args=(place, context), name=f"load {place}")
        for place, context in enumerate(contexts)
    ]
    contexts[0].at_once(len(contexts))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contexts[0].at_once(1)
    if errors:
        raise errors[0]
    return results  # type: ignore[return-value]  # every job has returned
