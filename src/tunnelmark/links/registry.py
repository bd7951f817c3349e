"""All link models of this package."""

from functools import cache

from pydantic import ValidationError

import tunnelmark.links
from tunnelmark.links.base import DIGEST, Link
from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import drivers, make
from tunnelmark.model.trial import DriverSpec


@cache
def link_kinds() -> dict[str, type[Link]]:
    """Return the link models by kind."""
    return drivers(tunnelmark.links, Link)  # type: ignore[type-abstract]


def link_of(spec: DriverSpec) -> Link:
    """Return the link of a study that is run, for what it was when the study was read.

    Raises ``LabError`` where a file of it is gone or has changed since.
    """
    try:
        link = make(link_kinds(), spec)
    except ValidationError as error:
        found = error.errors()[0]
        key, why = ".".join(map(str, found["loc"])), found["msg"].removeprefix("Value error, ")
        raise LabError(f"link {spec.label}: {key} {why}") from error
    now = link.params.columns()
    for name, path in now.items():
        digest = f"{name}{DIGEST}"
        if spec.columns.get(digest, now.get(digest)) != now.get(digest):
            raise LabError(
                f"{path} has changed since the study was read (put the file back, or begin a new "
                "run)"
            )
    return link
