"""Names in a sentence."""

from collections.abc import Sequence
from typing import Final

MOST_NAMED: Final = 4


def names(found: Sequence[str], *, last: str = "and", most: int = MOST_NAMED) -> str:
    """Return ``a, b and c``; of more than ``most`` the first ones and how many more."""
    shown = list(found[:most])
    if len(found) > most:
        shown.append(f"{len(found) - most} more")
    if len(shown) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}"
