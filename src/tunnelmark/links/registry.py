"""All link models of this package."""

from functools import cache

import tunnelmark.links
from tunnelmark.links.base import Link
from tunnelmark.model.registry import drivers


@cache
def link_kinds() -> dict[str, type[Link]]:
    """Return the link models by kind."""
    return drivers(tunnelmark.links, Link)  # type: ignore[type-abstract]
