"""What is removed is removed whole: a step that fails leaves none of those behind it undone."""

from collections.abc import Callable


def do_all(*steps: Callable[[], object]) -> None:
    """Do all steps in order. If some fail, the first error is raised when all have been tried."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the rest is removed all the same
            first = first or error
    if first is not None:
        raise first
