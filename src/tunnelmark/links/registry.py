"""All link models of this package."""

from functools import cache

import tunnelmark.links
from tunnelmark.links.base import Link
from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import drivers, make
from tunnelmark.model.trial import DriverSpec


@cache
def link_kinds() -> dict[str, type[Link]]:
    """Return the link models by kind."""
    return drivers(tunnelmark.links, Link)  # type: ignore[type-abstract]


def link_of(spec: DriverSpec) -> Link:
    """Return the link of a study that is run, for what it was when the study was read.

    Raises ``LabError`` where a file of it has changed since.
    """
    link = make(link_kinds(), spec)
    if (path := link.changed(spec.columns)) is not None:
        raise LabError(
            f"{path} has changed since the study was read (put the file back, or begin a new run)"
        )
    return link
