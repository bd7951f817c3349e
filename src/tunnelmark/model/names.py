"""Names that no other has: of programs, logs and files of a run."""

import itertools
import secrets
from typing import Final

_PROCESS: Final = secrets.token_hex(2)
"""A resumed run appends to the logs of the one before it."""
_NUMBERS: Final = itertools.count(1)


def unique_name(stem: str) -> str:
    """Return a name that begins with ``stem`` and that this process has not given before.

    A log may be appended to, and it is evidence: what an earlier program of the same name wrote
    must never count as this one's. Four random digits alone coincide in 300 names with even odds.
    """
    return f"{stem}-{_PROCESS}{next(_NUMBERS)}"
