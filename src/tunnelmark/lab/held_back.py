"""How often the parts of a device were held back by its CPU limit, each part for itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tunnelmark.hosts.cgroup import Throttled

_NEVER: Final = Throttled(0, 0)


@dataclass(frozen=True)
class HeldBack:
    """What the kernel counted of each control group of a device since that group was made."""

    groups: Mapping[str, Throttled]
    """By the path of the group."""

    def since(self, earlier: "HeldBack") -> Throttled:
        """Return what was counted since an earlier reading, of the group that was busiest since.

        A group that was made since counts from its beginning.
        """
        counts = [
            count.since(earlier.groups.get(path, _NEVER)) for path, count in self.groups.items()
        ]
        return max(counts, key=lambda count: count.throttled, default=_NEVER)
