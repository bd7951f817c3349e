"""Templates of recipes: ``${name}`` is filled in, ``$$`` is a dollar, any other ``$`` an error."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_DOLLAR: Final = re.compile(r"\$(?:(\$)|\{([a-zA-Z0-9_.-]{1,80})\}|)")


def names_in(text: str) -> Iterator[str]:
    """Return the names that a template uses; raises ``ValueError`` for a lone dollar."""
    for match in _DOLLAR.finditer(text):
        if match.group(2):
            yield match.group(2)
        elif not match.group(1):
            raise ValueError(
                f"has a lone $ at character {match.start() + 1}: write ${{name}}, or $$ for a "
                "dollar"
            )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template with its names filled in; every name must be there."""
    return _DOLLAR.sub(lambda match: "$" if match.group(1) else values[match.group(2)], text)
