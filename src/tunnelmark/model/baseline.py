"""The label of a baseline: as many bare paths and clients as the tunnel beside it has."""

import re
from collections.abc import Mapping
from typing import Final

from tunnelmark.model.trial import BASELINE

USUAL: Final[Mapping[str, object]] = {
    "count": 1,
    "clients": None,
    "shared": False,
    "inner": "ipv4",
}
"""What a baseline takes over of its tunnel's parameters, and what it is where that has none."""


def label_of(params: Mapping[str, object]) -> str:
    """Return the label of a baseline of which these are not as usual, like ``none x3 IPv6``."""
    words = [BASELINE]
    if "count" in params:
        words.append(f"x{params['count']}")
    if "clients" in params:
        words.append(f"{params['clients']} client{'s' * (params['clients'] != 1)}")
    if "shared" in params:
        words.append(_SHARED)
    if params.get("inner") == "ipv6":
        words.append(_IPV6)
    return " ".join(words)


def load_of(label: str) -> str:
    """Return who loads the link beside such a baseline, in words: empty where one client does.

    Tunnels are rivals only under the same: one client against 50 says nothing of two programs.
    """
    words = label.removeprefix(BASELINE).removesuffix(_IPV6).strip()
    return _PATHS.sub(lambda found: f"{found[1]} tunnels at once", words)


_SHARED: Final = "on one link"
_IPV6: Final = "IPv6"
_PATHS: Final = re.compile(r"^x(\d+)")
